"""The page of what leaks: a table for each attack, methods across and defences down, as Markdown and as HTML.

Everything on it comes from the cells' files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrel.files import write_text
from fedrel.leaks.leak_records import ATTACKS, LeakCell
from fedrel.leaks.leak_table import abouts, read_cells
from fedrel.studio.formatting import NOTHING, duration, share
from fedrel.studio.rendering import render

PAGE, HTML = "README.md", "report.html"
HEADS = {
    "words": "words: precision, recall",
    "tokens": "tokens",
    "membership": "membership: AUC (TPR at 1 %, 0.1 %)",
    "counts": "relation counts: r beyond average (r)",
    "facts": "facts: precision, recall",
}
Show = Callable[[LeakCell], str]


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
        f"| {cell.method} | {cell.defence} | {' | '.join(_SHOWN[name](cell) for name in names)} |"
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
        if all(name in cell.why_not or cell.stopped for cell in cells):
            continue  # there is nothing to attack anywhere
        rows = []
        for defence in _used(cells):
            row = [found.get((method, defence)) for method in methods]
            rows.append((defence, [NOTHING if cell is None else _SHOWN[name](cell) for cell in row]))
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


def _words(cell: LeakCell) -> str:
    if cell.words is None:
        return _missing(cell, "words")
    return f"P {cell.words.precision:.2f}, R {cell.words.recall:.2f} (guessing {cell.words.guessing:.2f})"


def _tokens(cell: LeakCell) -> str:
    if cell.tokens is None:
        return _missing(cell, "tokens")
    return f"F1 {cell.tokens.f1:.2f}, ROUGE-1 {share(cell.tokens.rouge_1)}"


def _membership(cell: LeakCell) -> str:
    found = cell.membership
    if found is None:
        return _missing(cell, "membership")
    few = f"{100 * found.tpr_at_1_percent:.1f} %, {100 * found.tpr_at_0_1_percent:.1f} %"
    return f"{found.auc:.3f} ({few})"


def _counts(cell: LeakCell) -> str:
    if cell.counts is None:
        return _missing(cell, "counts")
    return f"{cell.counts.beyond_average:.2f} ({cell.counts.correlation:.2f})"


def _facts(cell: LeakCell) -> str:
    if cell.facts is None:
        return _missing(cell, "facts")
    return f"P {cell.facts.precision:.2f}, R {cell.facts.recall:.2f} (guessing {cell.facts.guessing:.2f})"


_SHOWN: Mapping[str, Show] = {
    "words": _words,
    "tokens": _tokens,
    "membership": _membership,
    "counts": _counts,
    "facts": _facts,
}


def _missing(cell: LeakCell, attack: str) -> str:
    return "stopped" if cell.stopped else "nothing to attack" if attack in cell.why_not else NOTHING


def _notes(cells: Sequence[LeakCell]) -> list[str]:
    """Why there was nothing to attack, and why runs were stopped."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for attack, why in cell.why_not.items():
            reasons.setdefault((attack, why), []).append(f"{cell.method} under {cell.defence}")
        if cell.stopped:
            reasons.setdefault(("stopped", cell.stopped), []).append(f"{cell.method} under {cell.defence}")
    return [f"{attack}: {why} ({'; '.join(which)})" for (attack, why), which in reasons.items()]


def _used(cells: Sequence[LeakCell]) -> dict[str, str]:
    known = abouts()
    asked = {cell.defence for cell in cells}
    return {name: about for name, about in known.items() if name in asked}
