"""What the page that compares methods says: who is best, by how much, at what cost, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedrel.studio import figures, notes, words
from fedrel.studio.case_study import case_tables
from fedrel.studio.figures import Series
from fedrel.studio.page import Plot, flatten
from fedrel.studio.runs import Run
from fedrel.studio.tables import Column, Summary, row, summarise

Runs = Mapping[str, Sequence[Run]]

_CHOSEN = "selection_precision"


def comparison_page(folder: Path, runs: Runs) -> dict[str, Any]:
    """The values of `comparison.html`."""
    runs = {method: own for method, own in runs.items() if own}
    every = [(method, run) for method, own in runs.items() for run in own]
    rows = [row(method, run.result) for method, run in every]
    summary = summarise(rows)
    first = next((run for _, run in every), None)
    metrics = [column for column in summary.columns if column.quality and column.name != _CHOSEN]
    primary = metrics[0].name if metrics else ""
    winner = _winner(summary, primary)
    return {
        "title": f"{len(runs)} methods compared" if len(runs) != 1 else f"{summary.methods[0]}, compared",
        "summary": summary,
        "verdict": _verdict(summary, primary),
        "curves": _curves(runs, winner),
        "convergence": _convergence(runs, primary, winner),
        "selection": _selection(runs, winner),
        "traffic": _traffic(summary),
        "methods": list(runs),
        "cases": case_tables({method: own[0].cases for method, own in runs.items()}),
        "case_seed": first.result.seed if first else None,
        "rows": [(one, _link(folder, run)) for one, (_, run) in zip(rows, every, strict=True)],
        "metrics": metrics,
        "methods_argument": shlex.quote(",".join(runs)),
        "config": first.config if first else "",
        "environment": flatten(first.environment) if first else {},
    }


def _column(summary: Summary, name: str) -> Column | None:
    return next((column for column in summary.columns if column.name == name), None)


def _order(column: Column) -> list[tuple[str, words.Spread]]:
    known = [(method, cell) for method, cell in column.cells.items() if cell]
    return sorted(known, key=lambda item: -item[1].mean)


def _winner(summary: Summary, primary: str) -> str:
    column = _column(summary, primary)
    return _order(column)[0][0] if column else ""


def _verdict(summary: Summary, primary: str) -> list[str]:
    """The table in a few sentences, with what the seeds allow one to believe."""
    column = _column(summary, primary)
    if column is None or len(ordered := _order(column)) < 2:
        return []
    (best, top), (second, next_) = ordered[:2]
    if len(column.best) > 1:
        said = [
            f"{words.several(sorted(column.best))} share the highest {column.label}, {words.share(top.mean)}."
        ]
    else:
        lead = words.share(top.mean - next_.mean)
        said = [f"{best} has the highest {column.label}, {words.share(top.mean)}: {lead} above {second}."]
        spread = max(top.std, next_.std)
        if min(top.runs, next_.runs) < 2:
            said.append("With one seed a method there is no telling how much of that is chance.")
        else:
            more = "more" if top.mean - next_.mean > spread else "no more"
            said.append(f"That is {more} than the seeds differ (standard deviation {words.share(spread)}).")
    chosen = _column(summary, _CHOSEN)
    if chosen is not None and len(cleanest := _order(chosen)) > 1 and len(chosen.best) == 1:
        name, cell = cleanest[0]
        who = "It also" if name == best else name
        said.append(f"{who} trained on the cleanest sentences: {cell.mean:.0%} really state their fact.")
    return said


def _curves(runs: Runs, winner: str) -> Plot | None:
    lines = []
    for place, (method, own) in enumerate(runs.items()):
        curves = [run.curve for run in own if run.curve and run.curve.recall]
        if curves:
            recall, precision = figures.mean_curve(curves)
            lines.append(Series(method, place, recall, precision, strong=method == winner))
    if not lines:
        return None
    mean = any(len(own) > 1 for own in runs.values())
    return Plot(
        "Precision and recall",
        figures.precision_recall(lines),
        f"Precision over recall on the test set for {words.several([line.name for line in lines])}.",
        notes.CURVE + (notes.MEAN_CURVES if mean else "") + notes.LEGEND,
    )


def _convergence(runs: Runs, primary: str, winner: str) -> Plot | None:
    label = words.label(primary)
    values = {
        method: [{one.round: (one.dev or {}).get(primary) for one in run.rounds} for run in own]
        for method, own in runs.items()
    }
    return _over_rounds(
        f"{label} on the development set",
        label,
        values,
        winner,
        notes.DEVELOPMENT,
    )


def _selection(runs: Runs, winner: str) -> Plot | None:
    values = {
        method: [{one.round: one.selection_precision for one in run.rounds} for run in own]
        for method, own in runs.items()
    }
    return _over_rounds(
        "Selection precision",
        "Selection precision",
        values,
        winner,
        notes.SELECTION,
        unit=True,
    )


def _over_rounds(
    title: str,
    label: str,
    values: Mapping[str, Sequence[Mapping[int, float | None]]],
    winner: str,
    note: str,
    *,
    unit: bool = False,
) -> Plot | None:
    """A line a method over the rounds, the mean of its seeds with a band of one standard deviation."""
    lines = [
        figures.mean_series(method, place, own, strong=method == winner)
        for place, (method, own) in enumerate(values.items())
    ]
    lines = [line for line in lines if line.y]
    if not lines:
        return None
    last = int(max(line.x[-1] for line in lines))
    figure = figures.by_round(figures.lines(lines, "Round", label, unit=unit), last)
    ends = [f"{line.name} {words.share(line.y[-1])}" for line in lines]
    bands = notes.BANDS if any(line.std for line in lines) else ""
    return Plot(title, figure, f"{title} by round; at the end {words.several(ends)}.", note + bands)


def _traffic(summary: Summary) -> Plot | None:
    up, down = _column(summary, "up"), _column(summary, "down")
    if up is None or down is None:
        return None
    groups = {
        column.label: [cell.mean if (cell := column.cells[method]) else 0.0 for method in summary.methods]
        for column in (up, down)
    }
    told = [f"{method} {up.text(method)} and {down.text(method)}" for method in summary.methods]
    return Plot(
        "What crossed the boundary",
        figures.grouped_bytes(summary.methods, groups),
        f"Bytes sent by and to the sites in a run: {words.several(told)}.",
        notes.BOUNDARY,
    )


def _link(folder: Path, run: Run) -> str | None:
    """The address of a run's own page, if it has one below the comparison's folder."""
    page = run.folder / "report.html"
    if not page.exists() or not page.resolve().is_relative_to(folder.resolve()):
        return None
    return quote(page.resolve().relative_to(folder.resolve()).as_posix())
