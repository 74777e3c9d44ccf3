"""The page that compares methods: which is best, by how much, at which sites, at what cost, on which sentences."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedrel.runs.folder import Run
from fedrel.runs.records import Round
from fedrel.studio import figures, notes
from fedrel.studio import formatting as fmt
from fedrel.studio.breakdown import class_comparison, gains, site_strips
from fedrel.studio.examples import case_tables, cases_to_show
from fedrel.studio.figures import Plot, Series
from fedrel.studio.formatting import flatten
from fedrel.studio.tables import SELECTION, Column, Summary, summarise

Runs = Mapping[str, Sequence[Run]]
Link = Callable[[Run], str | None]

_FAR_CHEAPER = 5  # bytes are on a logarithmic scale if some method uploads so many times less than another


def comparison_page(runs: Runs, link: Link) -> dict[str, Any]:
    """The values of `comparison.html`; `link` gives the address of a run's own page."""
    runs = {method: own for method, own in runs.items() if own}
    every = [(method, run) for method, own in runs.items() for run in own]
    rows = [run.row(method) for method, run in every]
    summary = summarise(rows)
    first = next((run for _, run in every), None)
    primary = first.result.primary if first else ""
    winner = _winner(summary, primary)
    return {
        "title": f"{len(runs)} methods compared" if len(runs) != 1 else f"{summary.methods[0]}, compared",
        "setting": _setting(every),
        "gains": gains(runs),
        "summary": summary,
        "verdict": _verdict(summary, primary),
        "curves": _curves(runs, winner),
        "relations": class_comparison(runs),
        "sites": site_strips(runs),
        "convergence": _convergence(runs, primary, winner),
        "by_bytes": _by_bytes(runs, primary, winner),
        "by_seconds": _by_seconds(runs, primary, winner),
        "selection": _selection(runs, winner),
        "traffic": _traffic(summary),
        "methods": list(runs),
        "cases": case_tables({method: cases_to_show(own[0]) for method, own in runs.items()}),
        "case_seed": first.result.seed if first else None,
        "rows": [(one, link(run)) for one, (_, run) in zip(rows, every, strict=True)],
        "methods_argument": shlex.quote(",".join(runs)),
        "config": first.config if first else "",
        "environment": flatten(first.environment) if first else {},
    }


def _setting(every: Sequence[tuple[str, Run]]) -> str:
    """The runs' common setting; centralised runs do not know how many sites there are."""
    said = [fmt.setting(run.config, run.label_counts) for _, run in every]
    return max(said, key=len, default="")


def _order(column: Column) -> list[tuple[str, fmt.Spread]]:
    known = [(method, cell) for method, cell in column.cells.items() if cell]
    return sorted(known, key=lambda item: -item[1].mean)


def _winner(summary: Summary, primary: str) -> str:
    column = summary.column(primary)
    return _order(column)[0][0] if column else ""


def _verdict(summary: Summary, primary: str) -> list[str]:
    """The table in a few sentences, and whether the lead is larger than the difference between seeds."""
    column = summary.column(primary)
    if column is None or len(ordered := _order(column)) < 2:
        return []
    (best, top), (second, next_) = ordered[:2]
    if len(column.best) > 1:
        said = [
            f"{fmt.several(sorted(column.best))} share the highest {column.label}, {fmt.share(top.mean)}."
        ]
    else:
        lead = fmt.share(top.mean - next_.mean)
        said = [f"{best} has the highest {column.label}, {fmt.share(top.mean)}: {lead} above {second}."]
        spread = max(top.std, next_.std)
        if min(top.runs, next_.runs) < 2:
            said.append("With one seed a method there is no telling how much of that is chance.")
        else:
            more = "more" if top.mean - next_.mean > spread else "no more"
            said.append(f"That is {more} than the seeds differ (standard deviation {fmt.share(spread)}).")
    fairest = summary.column("worst_site")
    if fairest is not None and len(fairest.best) == 1:
        name, cell = _order(fairest)[0]
        said.append(f"{'It' if name == best else name} does best at the worst site: {fmt.share(cell.mean)}.")
    chosen = summary.column(SELECTION)
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
        f"Precision over recall on the test set for {fmt.several([line.name for line in lines])}.",
        notes.CURVE + (notes.MEAN_CURVES if mean else "") + notes.LEGEND,
    )


def _convergence(runs: Runs, primary: str, winner: str) -> Plot | None:
    label = fmt.label(primary)
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
        target=_target(runs),
    )


def _by_bytes(runs: Runs, primary: str, winner: str) -> Plot | None:
    """The development metric over what the sites have sent."""
    lines = [line for line in _along(runs, primary, winner, lambda one: one.bytes.up) if line.x[0] > 0]
    if not lines:
        return None
    label, first = fmt.label(primary), [line.x[0] for line in lines]
    figure = figures.lines(lines, "Sent by the sites", label, target=_target(runs))
    figure["layout"]["xaxis"].update(tickformat="~s", ticksuffix="B", rangemode="tozero")
    far = max(first) >= _FAR_CHEAPER * min(first)
    if far:
        figure["layout"]["xaxis"].update(type="log", dtick=1)
    figure["layout"]["hovermode"] = "closest"
    ends = [f"{line.name} {fmt.share(line.y[-1])} after {fmt.size(line.x[-1])}" for line in lines]
    note = notes.BY_BYTES + _about_cut(lines) + (notes.LOGARITHMIC if far else "")
    return Plot(f"{label} over bytes", figure, f"{label} over bytes: {fmt.several(ends)}.", note)


def _by_seconds(runs: Runs, primary: str, winner: str) -> Plot | None:
    """The development metric over the time that rounds took."""
    lines = [line for line in _along(runs, primary, winner, lambda one: one.seconds) if line.x[-1] > 0]
    if not lines:
        return None
    label = fmt.label(primary)
    figure = figures.lines(lines, "Seconds", label, target=_target(runs))
    figure["layout"]["xaxis"].update(rangemode="tozero")
    figure["layout"]["hovermode"] = "closest"
    ends = [f"{line.name} {fmt.share(line.y[-1])} after {fmt.duration(line.x[-1])}" for line in lines]
    note = notes.BY_SECONDS + _about_cut(lines)
    return Plot(f"{label} over time", figure, f"{label} over time: {fmt.several(ends)}.", note)


def _along(runs: Runs, primary: str, winner: str, spent: Callable[[Round], float]) -> list[Series]:
    """A method's development metric over what was spent by the end of each round, both means over seeds."""
    lines = []
    for place, (method, own) in enumerate(runs.items()):
        metric = [{one.round: (one.dev or {}).get(primary) for one in run.rounds} for run in own]
        total = figures.mean_series(method, place, [_so_far(run, spent) for run in own])
        so_far = dict(zip(total.x, total.y, strict=True))
        mean = figures.mean_series(method, place, metric, strong=method == winner)
        lines.append(replace(mean, x=[so_far[number] or 0.0 for number in mean.x]))
    return [line for line in lines if line.y]


def _target(runs: Runs) -> float | None:
    """The target that all runs share."""
    targets = {run.target for own in runs.values() for run in own}
    return targets.pop() if len(targets) == 1 else None


def _so_far(run: Run, spent: Callable[[Round], float]) -> dict[int, float | None]:
    """What was spent by the end of each round."""
    totals = accumulate(float(spent(one)) for one in run.rounds)
    return {one.round: total for one, total in zip(run.rounds, totals, strict=True)}


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
    target: float | None = None,
) -> Plot | None:
    """A line over the rounds for each method: the mean over seeds, with a band of one standard deviation."""
    lines = [
        figures.mean_series(method, place, own, strong=method == winner)
        for place, (method, own) in enumerate(values.items())
    ]
    lines = [line for line in lines if line.y]
    if not lines:
        return None
    last = int(max(line.x[-1] for line in lines))
    figure = figures.by_round(figures.lines(lines, "Round", label, unit=unit, target=target), last)
    ends = [f"{line.name} {fmt.share(line.y[-1])}" for line in lines]
    bands = notes.BANDS if any(line.std for line in lines) else ""
    return Plot(
        title, figure, f"{title} by round; at the end {fmt.several(ends)}.", note + bands + _about_cut(lines)
    )


def _about_cut(lines: Sequence[Series]) -> str:
    """That lines end before some of their runs do, if so."""
    return notes.CUT if any(line.cut for line in lines) else ""


def _traffic(summary: Summary) -> Plot | None:
    up, down = summary.column("up"), summary.column("down")
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
        f"Bytes sent by and to the sites in a run: {fmt.several(told)}.",
        notes.BOUNDARY,
    )


def link_below(folder: Path, run: Run) -> str | None:
    """The address of a run's own report, if it has one below the comparison's folder."""
    page = run.folder / "report.html"
    if not page.exists() or not page.resolve().is_relative_to(folder.resolve()):
        return None
    return quote(page.resolve().relative_to(folder.resolve()).as_posix())
