"""The page of what leaks: a table for each attack, methods across and defences down, as Markdown and as HTML.

Everything on it comes from the cells' files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.files import write_text
from fedrel.leaks.leak_records import ATTACKS, FactLeak, LeakCell, WordLeak
from fedrel.leaks.leak_table import abouts, read_cells
from fedrel.studio.formatting import NOTHING, duration, share
from fedrel.studio.rendering import render

PAGE, HTML = "README.md", "report.html"
HEADS = {
    "words": "words: precision, recall",
    "tokens": "tokens: F1 (ROUGE-1, ROUGE-2)",
    "membership": "membership: AUC (TPR at 1 %, 0.1 %)",
    "counts": "relation counts: r beyond average (r)",
    "facts": "facts: precision, recall",
}


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
        lines += [f"| defence | {' | '.join(table.methods)} |", f"|---|{'---|' * len(table.methods)}"]
        lines += [f"| {name} | {' | '.join(row)} |" for name, row in table.rows]
        lines.append("")
    lines += ["## The defences", ""]
    lines += [f"- `{name}`: {about}" for name, about in _used(cells).items()]
    if notes := _notes(cells):
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def whole_table(cells: Sequence[LeakCell]) -> list[str]:
    """All attacks in one table of Markdown, a row for each method and defence."""
    names = [table.name for table in attack_tables(cells)]
    rows = [
        f"| {cell.method} | {cell.defence} | {' | '.join(_shown(cell, name) for name in names)} |"
        for cell in cells
    ]
    heads = " | ".join(HEADS[name] for name in names)
    return [f"| method | defence | {heads} |", f"|---|---|{'---|' * len(names)}", *rows]


def attack_tables(cells: Sequence[LeakCell]) -> list[AttackTable]:
    """A table for every attack."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    found = {(cell.method, cell.defence): cell for cell in cells}
    tables = []
    for name, about in ATTACKS.items():
        if all(name in cell.why_not or cell.refused or cell.stopped for cell in cells):
            continue  # there is nothing to attack anywhere
        rows = []
        for defence in _used(cells):
            row = [found.get((method, defence)) for method in methods]
            rows.append((defence, [NOTHING if cell is None else _shown(cell, name) for cell in row]))
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


def _shown(cell: LeakCell, attack: str) -> str:
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
