"""The part of the pages about single relations: the scores of each, and which are confused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import Classes, ClassScores, Confusion
from fedrel.runs.folder import Run
from fedrel.studio import formatting as fmt
from fedrel.studio import heatmaps, notes
from fedrel.studio.figures import Plot
from fedrel.studio.heatmaps import Layer

_SIDE_BY_SIDE = 8  # with so few relations, the matrix stands beside the table


@dataclass(frozen=True, slots=True)
class ClassView:
    """A line a relation, the most frequent first, and the confusion matrix."""

    rows: list[ClassScores]
    confusion: Plot | None
    wide: bool


def class_view(classes: Classes | None) -> ClassView | None:
    """The relations of one run; None for a ranking, which has no such numbers."""
    if classes is None:
        return None
    rows = sorted(classes.per_class, key=lambda row: -row.support)
    return ClassView(rows, _confusion(classes.confusion), len(rows) > _SIDE_BY_SIDE)


def class_comparison(runs: Mapping[str, Sequence[Run]]) -> Plot | None:
    """F1 of each relation with each method, the mean over seeds; None if there are fewer than two methods."""
    found = {method: [run.classes.per_class for run in own if run.classes] for method, own in runs.items()}
    found = {method: own for method, own in found.items() if own}
    if len(found) < 2:
        return None
    one = next(iter(found.values()))[0]  # all runs have the same test set
    order = sorted(range(len(one)), key=lambda place: -one[place].support)[: heatmaps.MOST]
    names = [one[place].relation for place in order]
    scores = [[[rows[place].f1 for place in order] for rows in own] for own in found.values()]
    f1 = np.array([np.mean(own, axis=0) for own in scores])
    text = [[f"{cell:.2f}" for cell in row] for row in f1]
    hover = [
        [f"{method}, {name}: F1 {fmt.share(cell)}" for name, cell in zip(names, row, strict=True)]
        for method, row in zip(found, f1, strict=True)
    ]
    height, width = heatmaps.size(list(found), names)
    return Plot(
        "F1 by relation",
        heatmaps.heat_map([Layer(f1, text, hover)], list(found), names, "", ""),
        f"F1 of each relation for {fmt.several(list(found))}.",
        notes.BY_RELATION + (f" Shown are the {len(names)} most frequent." if len(one) > len(names) else ""),
        height=height,
        width=width,
    )


def _confusion(confusion: Confusion) -> Plot | None:
    counts = np.array(confusion.counts, np.int64)
    if not counts.sum():
        return None
    order = heatmaps.most_frequent(counts.sum(axis=1))
    names = heatmaps.names_of(confusion.relations, order)
    table = heatmaps.merged(heatmaps.merged(counts, order, 0), order, 1)
    figure = heatmaps.heat_map(_layers(table, names), names, names, "True relation", "Found relation")
    height, width = heatmaps.size(names, names)
    right, mistake = np.trace(counts) / counts.sum(), _worst_mistake(table, names)
    return Plot(
        "Confusion matrix",
        figure,
        f"Confusion matrix of {len(names)} relations: {right:.0%} of the test sentences lie on its diagonal."
        f" {mistake}",
        f"{notes.CONFUSION} {mistake}" + (notes.RARE if heatmaps.OTHERS in order else ""),
        height=height,
        width=width,
    )


def _layers(table: NDArray[np.integer], names: Sequence[str]) -> list[Layer]:
    """Right answers in one hue, wrong ones in another, both as shares of their row."""
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    text = [[fmt.count(int(cell)) if cell else "" for cell in row] for row in table]
    hover = [
        [
            f"{gold} found as {found}: {fmt.count(int(count))}, {share:.0%} of the row"
            for found, count, share in zip(names, row, row_shares, strict=True)
        ]
        for gold, row, row_shares in zip(names, table, shares, strict=True)
    ]
    diagonal = np.eye(len(names), dtype=bool)
    return [
        Layer(np.where(diagonal, np.nan, shares), text, hover, "warm", small_show=True),
        Layer(np.where(diagonal, shares, np.nan), text, hover, "cool", small_show=True),
    ]


def _worst_mistake(table: NDArray[np.integer], names: Sequence[str]) -> str:
    wrong = np.where(np.eye(len(table), dtype=bool), 0, table)
    if not wrong.any():
        return "Nothing is confused."
    gold, found = divmod(int(wrong.argmax()), len(names))
    times = fmt.count(int(wrong.max()))
    return f"The most frequent mistake is {names[gold]} found as {names[found]}: {times} times."
