"""The page of a sweep: every combination of settings with its seeds, as a table and as a plot.

Everything on it comes from `sweep.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.files import write_text
from fedrel.runs.folder import read_json
from fedrel.runs.records import Sweep, Trial, last_of_each
from fedrel.runs.sweep import DIVERGED
from fedrel.studio.formatting import NOTHING, Show, Spread, count, label, markdown_table, median, share, size
from fedrel.studio.svg import write_svg
from fedrel.studio.tables import ENOUGH

if TYPE_CHECKING:
    from rich.table import Table

PLOT = "sweep.svg"


def write_sweep_page(folder: Path) -> Path:
    """Write `sweep.md` and the plot of a folder that has a `sweep.json`."""
    found: Sweep = read_json(Sweep, folder / "sweep.json")
    _draw(found, folder / PLOT)
    page = folder / "sweep.md"
    write_text(page, sweep_markdown(found))
    return page


def sweep_markdown(found: Sweep) -> str:
    """The page as Markdown: the best combination of each method in bold."""
    head, *lines = _lines(found)
    rows = [
        [f"**{cell}**" if best and cell else cell for cell in line]
        for line, best in zip(lines, _are_best(found), strict=True)
    ]
    table = markdown_table(head, rows, f"| --- | --- |{' ---: |' * (len(head) - 2)}")
    return f"{table}\n\n{_note(found)}\n\n![{_metric(found)} on dev, a dot a seed]({PLOT})\n"


def sweep_table(found: Sweep) -> Table:
    """The table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    head, *lines = _lines(found)
    table = Table(box=box.SIMPLE_HEAD, caption=Text(_note(found)), caption_justify="left")
    for place, name in enumerate(head):
        table.add_column(Text(name), justify="left" if place < 2 else "right", overflow="fold")
    table.add_column("")
    for line, best in zip(lines, _are_best(found), strict=True):
        table.add_row(
            *(Text(cell, style="bold green" if best else "") for cell in line), "best" if best else ""
        )
    return table


def _lines(found: Sweep) -> Iterator[list[str]]:
    """The head of the table and a line for each combination; columns that say nothing are left out."""
    rungs = any(one.rounds for one in found.rows)
    medians = any(len(one.seeds) >= ENOUGH for one in found.rows)
    targets = any(reached for one in found.rows for reached in one.reached)
    yield [
        "method",
        "settings",
        *(["rounds"] if rungs else []),
        f"{_metric(found)} on dev",
        *(["median"] if medians else []),
        *(["rounds to target", "median", "sent by sites until then"] if targets else []),
    ]
    for one in found.rows:
        rounds = [None if reached is None else float(reached.round) for reached in one.reached]
        bytes_up = [None if reached is None else float(reached.up) for reached in one.reached]
        yield [
            one.method,
            ", ".join(f"{key}={value}" for key, value in one.settings.items()),
            *([count(one.rounds)] if rungs else []),
            _dev(one),
            *([NOTHING if DIVERGED in one.seeds else share(median(one.seeds))] if medians else []),
            *([_spread(rounds, count), count(median(rounds)), _spread(bytes_up, size)] if targets else []),
        ]


def _dev(one: Trial) -> str:
    """A combination's dev metric over its seeds; one of which a seed diverged counts as diverged."""
    seeds = one.seeds or [one.dev]
    lost = sum(value == DIVERGED for value in seeds)
    return f"{lost} of {len(seeds)} diverged" if lost else _spread(seeds, share)


def _spread(values: Sequence[float | None], show: Show) -> str:
    """Mean and standard deviation, and how many have a value if not all."""
    spread = Spread.of(values)
    return NOTHING if spread is None else show(spread.mean) + spread.after_mean(show, len(values))


def _are_best(found: Sweep) -> list[bool]:
    """Which rows have their method's best settings, trained as far as these were."""
    last = [
        one
        for method, settings in found.best.items()
        for one in last_of_each([row for row in found.rows if row.method == method])
        if one.settings == settings
    ]
    return [any(row is one for one in last) for row in found.rows]


def _metric(found: Sweep) -> str:
    return label(found.rows[0].metric) if found.rows else ""


def _note(found: Sweep) -> str:
    seeds = max((len(one.seeds) for one in found.rows), default=0)
    said = f"Mean ± standard deviation over {seeds} seeds" if seeds > 1 else "One seed"
    return f"{said}; each run's best round on dev. The best settings of each method stand out."


def _draw(found: Sweep, path: Path) -> None:
    """A line for each combination, a dot for each seed, a mark at the mean; a panel a method."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(one.method for one in found.rows))
    own = {method: last_of_each([one for one in found.rows if one.method == method]) for method in methods}
    height = sum(0.28 * len(rows) + 1.1 for rows in own.values())
    figure = Figure(figsize=(7, height), layout="constrained")
    ratios = [len(rows) + 3 for rows in own.values()]
    axes = figure.subplots(len(methods), 1, squeeze=False, height_ratios=ratios, sharex=True).ravel()
    for axis, (method, rows) in zip(axes, own.items(), strict=True):
        for place, one in enumerate(rows):
            seeds = one.seeds or [one.dev]
            if DIVERGED in seeds:
                continue
            axis.plot(seeds, [place] * len(seeds), "o", color="C0", ms=4, alpha=0.6)
            axis.plot([one.dev], [place], "|", color="C3", ms=14, mew=2)
        names = [
            ", ".join(f"{key.split('.')[-1]}={value}" for key, value in one.settings.items()) for one in rows
        ]
        axis.set(title=method, yticks=range(len(rows)), yticklabels=names, ylim=(len(rows) - 0.5, -0.5))
        axis.grid(axis="x", alpha=0.3)
    if len(axes):
        axes[-1].set_xlabel(f"{_metric(found)} on dev")
    write_svg(figure, path, "sweep")
