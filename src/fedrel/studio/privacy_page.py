"""The metric against ε as a page of Markdown: a table, and a plot of the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from fedrel.files import write_text
from fedrel.runs.records import PrivacyTable
from fedrel.studio.formatting import NOTHING, Spread, label, share

PLOT = "privacy.svg"
_NONE = "∞"


def write_privacy_page(folder: Path, table: PrivacyTable) -> Path:
    """Write `privacy.md` and the plot."""
    _draw(table, folder / PLOT)
    page = folder / "privacy.md"
    write_text(page, privacy_markdown(table))
    return page


def privacy_markdown(table: PrivacyTable) -> str:
    """The page; the run without noise comes last."""
    lines = [
        f"# {label(table.metric)} against ε",
        "",
        f"`{table.method}`, privacy of each {table.level}, clip {table.clip:g}, δ = {table.delta:g}; "
        f"{label(table.metric)} on test of the best round on dev, mean ± standard deviation over seeds.",
        *([_searched(table)] if any(one.settings for one in table.rows) else []),
        "",
        f"| ε | noise | {label(table.metric)} | runs | stopped |",
        "|---:|---:|---:|---:|---:|",
    ]
    for target in targets(table):
        own = table.chosen(target)
        noise = Spread.of([one.noise for one in own])
        values = Spread.of([one.value for one in own])
        several = f" ± {share(values.std)}" if values and values.runs > 1 else ""
        cells = [
            _NONE if target is None else f"{target:g}",
            f"{noise.mean:.3g}" if noise else "0",
            f"{share(values.mean)}{several}" if values else NOTHING,
            str(len(own)),
            str(sum(one.stopped is not None for one in own)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"![{label(table.metric)} against ε]({PLOT})", ""])


def _searched(table: PrivacyTable) -> str:
    """What was tried, and what was chosen."""
    tried: dict[str, set[float]] = {}
    for row in table.rows:
        for key, value in row.settings.items():
            tried.setdefault(key, set()).add(value)
    grid = "; ".join(f"`{key}` {_numbers(sorted(values))}" for key, values in tried.items())
    best = "; ".join(
        f"ε {_NONE if target is None else f'{target:g}'}: {_numbers(table.best(target).values())}"
        for target in targets(table)
    )
    return (
        f"Tried for every ε with the first seed: {grid}. The best on dev ({best}) has the other seeds, too."
    )


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{one:g}" for one in values)


def targets(table: PrivacyTable) -> list[float | None]:
    """The values of ε in ascending order; None, without noise, last."""
    return sorted({one.target for one in table.rows}, key=lambda one: math.inf if one is None else one)


def _draw(table: PrivacyTable, path: Path) -> None:
    """A dot for each run, a line through the means; without noise, a level line."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "privacy"  # the same drawing has the same bytes
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    known = [target for target in targets(table) if target is not None and table.values(target)]
    for target in known:
        axis.plot(
            [target] * len(table.values(target)), table.values(target), "o", color="C0", ms=4, alpha=0.6
        )
    means = [sum(table.values(target)) / len(table.values(target)) for target in known]
    axis.plot(known, means, "-", color="C0", label=f"privacy of each {table.level}")
    if without := table.values(None):
        axis.axhline(sum(without) / len(without), color="C3", ls="--", label="without noise")
    axis.set_xscale("log", base=2)
    axis.set_xticks(known, [f"{target:g}" for target in known])
    axis.minorticks_off()
    axis.set(xlabel="ε", ylabel=f"{label(table.metric)} on test", title=table.method, ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, metadata={"Date": None})
