"""The pages of what protection costs and what it is worth: lies against defences, a metric against ε, what leaks.

Each shows one table: of attacks and defences, in Markdown, one block of rows for each attack; of ε, in Markdown,
with a plot of the same numbers; of what leaks, methods across and defences down for each attack, as Markdown and as
HTML, all of it from the cells' files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.federation.engines.attacks import ABSENT, ATTACKS
from fedrel.files import write_text
from fedrel.leaks.leak_cell import ATTACKS as LEAKS
from fedrel.leaks.leak_cell import FactLeak, LeakCell, WordLeak
from fedrel.leaks.leak_table import abouts, read_cells
from fedrel.runs import records
from fedrel.runs.records import PrivacyTable
from fedrel.studio.formatting import NOTHING, Spread, duration, label, markdown_table, share
from fedrel.studio.report import render
from fedrel.studio.svg import write_svg

NONE = "none"  # the attack of an honest run
STOPPED = "stopped"

PLOT = "privacy.svg"
_NO_NOISE = "∞"

PAGE, HTML = "README.md", "report.html"
HEADS = {
    "words": "words: precision, recall",
    "tokens": "tokens: F1 (ROUGE-1, ROUGE-2)",
    "membership": "membership: AUC (TPR at 1 %, 0.1 %)",
    "counts": "relation counts: r beyond average (r)",
    "facts": "facts: precision, recall",
}


def write_attack_page(folder: Path, table: records.AttackTable, defences: Mapping[str, str]) -> Path:
    """Write `attacks.md`; `defences` says what each is."""
    used = [name for name in defences if any(one.defence == name for one in table.cells)]
    lines = [
        "# What lying sites cost",
        "",
        f"{table.metric} on test, of the best round on dev. A row is an attack by so many of the sites, a column a",
        "defence; *stopped* is a run that could not go on, as its model had diverged, `-` one that was not made.",
        "Losses are against the honest run without a defence.",
        "",
        f"| attack | liars | {' | '.join(used)} |",
        f"|---|---|{'---|' * len(used)}",
        _attack_row("none", 0, [_outcome(table, NONE, 0, name) for name in used]),
    ]
    for attack in (ABSENT.name, *ATTACKS):
        for count in sorted({one.liars for one in table.cells if one.attack == attack}):
            lines.append(_attack_row(attack, count, [_outcome(table, attack, count, name) for name in used]))
    for count in sorted({one.liars for one in table.cells if one.liars}):
        lines.append(
            _attack_row("**largest loss**", count, [_largest_loss(table, count, name) for name in used])
        )
    lines += ["", "## The attacks", ""]
    lines += [f"- `{one.name}`: {one.about}" for one in (ABSENT, *ATTACKS.values())]
    lines += ["", "## The defences", ""]
    lines += [f"- `{name}`: {defences[name]}" for name in used]
    page = folder / "attacks.md"
    write_text(page, "\n".join(lines) + "\n")
    return page


def worst(table: records.AttackTable, liars: int, defence: str) -> float | None:
    """The largest loss of the metric under any attack by so many liars, against the honest run without a defence.

    None where a run is missing or was stopped.
    """
    honest = table.value(NONE, 0, NONE)
    values = [table.value(attack, liars, defence) for attack in ATTACKS]
    known = [value for value in values if value is not None]
    if honest is None or len(known) < len(values):
        return None
    return honest - min(known)


def write_privacy_page(folder: Path, table: PrivacyTable) -> Path:
    """Write `privacy.md` and the plot."""
    _draw_privacy(table, folder / PLOT)
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
        cells = [
            _NO_NOISE if target is None else f"{target:g}",
            f"{noise.mean:.3g}" if noise else "0",
            share(values.mean) + values.after_mean(share, values.runs) if values else NOTHING,
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
        f"ε {_NO_NOISE if target is None else f'{target:g}'}: {_numbers(table.best(target).values())}"
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


@dataclass(frozen=True, slots=True)
class AttackTable:
    """What one attack got: a row for each defence, a column for each method."""

    name: str
    about: str
    methods: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def write_leak_pages(folder: Path) -> Path:
    """Write `README.md` and `report.html` of a folder of cells; the path of the first."""
    cells = read_cells(folder)
    tables = attack_tables(cells)
    write_text(folder / PAGE, leak_markdown(cells))
    values = {
        "title": "What an attacker gets",
        "setting": about_cells(cells),
        "tables": tables,
        "defences": _used(cells),
        "notes": _notes(cells),
    }
    write_text(folder / HTML, render("leaks.html", values))
    return folder / PAGE


def leak_markdown(cells: Sequence[LeakCell]) -> str:
    """The page as Markdown."""
    lines = ["# What an attacker gets", "", about_cells(cells), "", *whole_table(cells), ""]
    for table in attack_tables(cells):
        lines += [f"## {table.name.capitalize()}", "", f"{table.about[0].upper()}{table.about[1:]}.", ""]
        head, rows = ["defence", *table.methods], [[name, *row] for name, row in table.rows]
        lines += [markdown_table(head, rows, f"|{'---|' * len(head)}"), ""]
    lines += ["## The defences", ""]
    lines += [f"- `{name}`: {about}" for name, about in _used(cells).items()]
    if notes := _notes(cells):
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def whole_table(cells: Sequence[LeakCell]) -> list[str]:
    """All attacks in one table of Markdown, a row for each method and defence."""
    names = [table.name for table in attack_tables(cells)]
    rows = [[cell.method, cell.defence, *(_got(cell, name) for name in names)] for cell in cells]
    head = ["method", "defence", *(HEADS[name] for name in names)]
    return markdown_table(head, rows, f"|{'---|' * len(head)}").splitlines()


def attack_tables(cells: Sequence[LeakCell]) -> list[AttackTable]:
    """A table for every attack."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    found = {(cell.method, cell.defence): cell for cell in cells}
    tables = []
    for name, about in LEAKS.items():
        if all(name in cell.why_not or cell.refused or cell.stopped for cell in cells):
            continue  # there is nothing to attack anywhere
        rows = []
        for defence in _used(cells):
            row = [found.get((method, defence)) for method in methods]
            rows.append((defence, [NOTHING if cell is None else _got(cell, name) for cell in row]))
        tables.append(AttackTable(name, about, methods, rows))
    return tables


def about_cells(cells: Sequence[LeakCell]) -> str:
    """How the cells were made, in a sentence or two."""
    first = cells[0]
    answers = max(cell.attacked for cell in cells)
    commits = sorted({cell.commit for cell in cells if cell.commit})
    seconds = sum(cell.seconds for cell in cells)
    return (
        f"{first.rounds} rounds, all of them attacked: up to {answers} answers of sites and {first.shadows} shadow "
        f"sites a round. {len(cells)} cells in {duration(seconds)}"
        + (f", commit {', '.join(commits)}." if commits else ".")
    )


def _got(cell: LeakCell, attack: str) -> str:
    """What an attack got out of a cell, or why there is nothing."""
    if (found := getattr(cell, attack)) is not None:
        return _SHOWN[attack](found)
    if cell.refused or cell.stopped:
        return "refused" if cell.refused else "stopped"
    return "nothing to attack" if attack in cell.why_not else NOTHING


def _found(one: WordLeak | FactLeak) -> str:
    return f"P {one.precision:.2f}, R {one.recall:.2f} (guessing {one.guessing:.2f})"


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "words": _found,
    "tokens": lambda one: f"{one.f1:.2f} ({share(one.rouge_1)}, {share(one.rouge_2)})",
    "membership": lambda one: (
        f"{one.auc:.3f} ({100 * one.tpr_at_1_percent:.1f} %, {100 * one.tpr_at_0_1_percent:.1f} %)"
    ),
    "counts": lambda one: f"{one.beyond_average:.2f} ({one.correlation:.2f})",
    "facts": _found,
}


def _attack_row(attack: str, liars: int, cells: list[str]) -> str:
    return f"| {attack} | {liars} | {' | '.join(cells)} |"


def _outcome(table: records.AttackTable, attack: str, liars: int, defence: str) -> str:
    cell = table.cell(attack, liars, defence)
    if cell is None:
        return "-"
    return STOPPED if cell.value is None else f"{cell.value:.3f}"


def _largest_loss(table: records.AttackTable, liars: int, defence: str) -> str:
    loss = worst(table, liars, defence)
    if loss is not None:
        return f"{loss:.3f}"
    return STOPPED if STOPPED in (_outcome(table, attack, liars, defence) for attack in ATTACKS) else "-"


def _draw_privacy(table: PrivacyTable, path: Path) -> None:
    """A dot for each run, a line through the means; without noise, a level line."""
    from matplotlib.figure import Figure

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
    write_svg(figure, path, "privacy")


def _notes(cells: Sequence[LeakCell]) -> list[str]:
    """Why there was nothing to attack, and why runs were stopped."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for attack, why in cell.why_not.items():
            reasons.setdefault((attack, why), []).append(f"{cell.method} under {cell.defence}")
        for word, reason in (("refused", cell.refused), ("stopped", cell.stopped)):
            if reason:
                reasons.setdefault((word, reason), []).append(f"{cell.method} under {cell.defence}")
    return [f"{attack}: {why} ({'; '.join(which)})" for (attack, why), which in reasons.items()]


def _used(cells: Sequence[LeakCell]) -> dict[str, str]:
    known = abouts()
    asked = {cell.defence for cell in cells}
    return {name: about for name, about in known.items() if name in asked}
