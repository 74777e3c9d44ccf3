"""A result broken down: by relation, with those that are confused, and by site, with who gains by taking part.

Whether it is better to take part is told by each natural site's metric on its own test part: alone, with others,
with all text.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import AtSites, Classes, ClassScores, Confusion
from fedrel.runs.folder import Run
from fedrel.studio import figures, notes
from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Figure, Layer, Plot, colour, framed, rule
from fedrel.studio.formatting import Spread

_SIDE_BY_SIDE = 8  # with so few relations, the matrix stands beside the table
_NAMED = 24  # bars with their names below and their values above; more are too narrow for that
_LONGEST_NAME = 18

BASELINE = "local"


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
    order = sorted(range(len(one)), key=lambda place: -one[place].support)[: figures.MOST]
    names = [one[place].relation for place in order]
    scores = [[[rows[place].f1 for place in order] for rows in own] for own in found.values()]
    f1 = np.array([np.mean(own, axis=0) for own in scores])
    text = [[f"{cell:.2f}" for cell in row] for row in f1]
    hover = [
        [f"{method}, {name}: F1 {fmt.share(cell)}" for name, cell in zip(names, row, strict=True)]
        for method, row in zip(found, f1, strict=True)
    ]
    height, width = figures.size(list(found), names)
    return Plot(
        "F1 by relation",
        figures.heat_map([Layer(f1, text, hover)], list(found), names, "", ""),
        f"F1 of each relation for {fmt.several(list(found))}.",
        notes.BY_RELATION + (f" Shown are the {len(names)} most frequent." if len(one) > len(names) else ""),
        height=height,
        width=width,
    )


def site_plot(sites: AtSites | None) -> Plot | None:
    """A bar for each site of a run, from the worst to the best; None where nothing was measured at sites."""
    if sites is None or sites.fairness is None:
        return None
    fair, label = sites.fairness, fmt.label(sites.metric)
    known = sorted((value, name) for name, value in sites.values.items() if value is not None)
    alike = sum(value == fair.worst for value, _ in known)
    worst = f"{alike} sites share the worst" if alike > 1 else f"The worst is {fair.worst_site}"
    said = (
        f"{label} at {len(known)} sites is {fmt.share(fair.mean)} on average, with a standard deviation of"
        f" {fmt.share(fair.spread)}. {worst}, {fmt.share(fair.worst)}."
    )
    return Plot(
        f"{label} at each site",
        _bars(known, label, fair.mean),
        said,
        f"{notes.tested_on(notes.AT_SITES, sites.natural)} {said}{_unmeasured(sites)}",
    )


def site_strips(runs: Mapping[str, Sequence[Run]]) -> Plot | None:
    """A row of dots for each method, a dot for each site of each run."""
    measured = {method: [run.result.sites for run in own if run.result.sites] for method, own in runs.items()}
    measured = {method: own for method, own in measured.items() if any(one.fairness for one in own)}
    if not measured:
        return None
    label = fmt.label(next(iter(measured.values()))[0].metric)
    traces: list[Figure] = []
    means = []
    for row, (method, own) in enumerate(measured.items()):
        dots = [(value, name) for one in own for name, value in one.values.items() if value is not None]
        mean = fmt.Spread.of([value for value, _ in dots])
        assert mean is not None  # one of the runs has a fairness, hence a value
        means.append(f"{method} {fmt.share(mean.mean)}")
        traces += _strip(row, list(runs).index(method), dots, mean.mean)
    figure = framed(traces, label, "")
    figure["layout"].update(showlegend=False, hovermode="closest")
    figure["layout"]["xaxis"].update(showgrid=True, rangemode="tozero")
    figure["layout"]["yaxis"].update(
        tickvals=list(range(len(measured))),
        ticktext=[html.escape(method) for method in measured],
        range=[len(measured) - 0.4, -0.6],
        showgrid=False,
    )
    return Plot(
        f"{label} at each site",
        figure,
        f"{label} at single sites; the means are {fmt.several(means)}.",
        notes.tested_on(notes.STRIPS, all(one.natural for own in measured.values() for one in own)),
        height=round(5 + 2.4 * len(measured), 1),
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """A method at a site: its metric, and the change against training alone."""

    spread: Spread | None
    change: float | None
    verdict: str  # "gain", "loss", or "" where seeds differ more than the methods

    @property
    def mark(self) -> str:
        """The verdict as a sign that does not need colour."""
        return {"gain": "▲", "loss": "▼"}.get(self.verdict, "=")


@dataclass(frozen=True, slots=True)
class Row:
    """A site: how many sentences or documents it trains and is tested on, and each method there."""

    site: str
    trained: int | None
    tested: int | None
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Gains:
    """The table, and what it says in sentences."""

    metric: str
    baseline: str
    methods: list[str]
    rows: list[Row]
    said: list[str]


def gains(runs: Mapping[str, Sequence[Run]]) -> Gains | None:
    """Every method against `local`; None unless sites are natural, and `local` and another method were run."""
    found = {method: _by_seed(own) for method, own in runs.items()}
    found = {method: own for method, own in found.items() if own}
    if BASELINE not in found or len(found) < 2:
        return None
    first = next(iter(found[BASELINE].values()))
    trained = _trained(runs[BASELINE])
    rows = [
        Row(
            site,
            trained.get(site),
            first.rows.get(site),
            [
                _cell(site, own, found[BASELINE] if method != BASELINE else None)
                for method, own in found.items()
            ],
        )
        for site in first.values
    ]
    methods = list(found)
    said = [
        _who_gains(method, [(row.site, row.cells[place]) for row in rows])
        for place, method in enumerate(methods)
    ]
    return Gains(first.metric, BASELINE, methods, rows, [line for line in said if line])


def _confusion(confusion: Confusion) -> Plot | None:
    counts = np.array(confusion.counts, np.int64)
    if not counts.sum():
        return None
    order = figures.most_frequent(counts.sum(axis=1))
    names = figures.names_of(confusion.relations, order)
    table = figures.merged(figures.merged(counts, order, 0), order, 1)
    figure = figures.heat_map(_layers(table, names), names, names, "True relation", "Found relation")
    height, width = figures.size(names, names)
    right, mistake = np.trace(counts) / counts.sum(), _worst_mistake(table, names)
    return Plot(
        "Confusion matrix",
        figure,
        f"Confusion matrix of {len(names)} relations: {right:.0%} of the test sentences lie on its diagonal."
        f" {mistake}",
        f"{notes.CONFUSION} {mistake}" + (notes.RARE if figures.OTHERS in order else ""),
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


def _unmeasured(sites: AtSites) -> str:
    without = sum(value is None for value in sites.values.values())
    if not without:
        return ""
    return f" {without} more had nothing in {'its' if without == 1 else 'their'} share to measure it by."


def _bars(known: Sequence[tuple[float, str]], label: str, mean: float) -> Figure:
    values = [value for value, _ in known]
    few = len(known) <= _NAMED
    trace = {
        "type": "bar",
        "x": list(range(len(known))),
        "y": values,
        "marker": {"color": [colour(1 if place == 0 else 0) for place in range(len(known))]},
        "text": [f"{value:.2f}" for value in values] if few else None,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [html.escape(f"{name}: {fmt.share(value)}") for value, name in known],
        "hoverinfo": "text",
    }
    figure = framed([trace], "Sites, from the worst to the best", label)
    figure["layout"].update(showlegend=False, hovermode="closest", bargap=0.25 if few else 0.05)
    figure["layout"]["xaxis"].update(
        showticklabels=few,
        tickvals=list(range(len(known))),
        ticktext=[html.escape(fmt.short(name, _LONGEST_NAME)) for _, name in known],
        range=[-0.6, len(known) - 0.4],
        ticks="",
    )
    figure["layout"]["yaxis"].update(rangemode="tozero")
    rule(figure, "y", mean, f"mean: {fmt.share(mean)}")
    return figure


def _strip(row: int, place: int, dots: Sequence[tuple[float, str]], mean: float) -> list[Figure]:
    """One method's dots, moved up and down a little so that none hides another, and a line at their mean."""
    tint = colour(place)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [value for value, _ in dots],
            "y": [row + (number % 5 - 2) * 0.07 for number in range(len(dots))],
            "marker": {"color": tint, "size": 9, "opacity": 0.55},
            "cliponaxis": False,
            "hovertext": [html.escape(f"{name}: {fmt.share(value)}") for value, name in dots],
            "hoverinfo": "text",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": [mean, mean],
            "y": [row - 0.32, row + 0.32],
            "line": {"color": "var(--ink)", "width": 2},
            "hoverinfo": "skip",
        },
    ]


def _by_seed(runs: Sequence[Run]) -> dict[int, AtSites]:
    known = {run.result.seed: run.result.sites for run in runs}
    return {seed: sites for seed, sites in known.items() if sites is not None and sites.natural}


def _trained(runs: Sequence[Run]) -> dict[str, int]:
    counts = next((run.label_counts for run in runs if run.label_counts), None)
    return dict(zip(counts.sites, map(sum, counts.counts), strict=True)) if counts else {}


def _cell(site: str, own: Mapping[int, AtSites], alone: Mapping[int, AtSites] | None) -> Cell:
    spread = Spread.of([one.values.get(site) for one in own.values()])
    if spread is None or alone is None:
        return Cell(spread, None, "")
    pairs = [(own[seed].values.get(site), alone[seed].values.get(site)) for seed in own if seed in alone]
    change = Spread.of([here - there for here, there in pairs if here is not None and there is not None])
    if change is None:
        return Cell(spread, None, "")
    clear = change.runs > 1 and abs(change.mean) > change.std
    return Cell(spread, change.mean, ("gain" if change.mean > 0 else "loss") if clear else "")


def _who_gains(method: str, cells: Sequence[tuple[str, Cell]]) -> str:
    """Who gains and who loses with a method."""
    known = [(site, cell) for site, cell in cells if cell.change is not None]
    if not known:
        return ""
    parts = []
    for verdict, verb in (("gain", "gains"), ("loss", "loses")):
        sites = [f"{site} ({cell.change:+.3f})" for site, cell in known if cell.verdict == verdict]
        if sites:
            parts.append(f"{fmt.several(sites)} {verb if len(sites) == 1 else verb[:-1]}")
    unclear = [site for site, cell in known if not cell.verdict]
    if unclear:
        parts.append(f"for {fmt.several(unclear)} seeds differ more than the change")
    return f"With {method}, against training alone: {'; '.join(parts)}."
