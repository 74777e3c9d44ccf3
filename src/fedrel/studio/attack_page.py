"""The table of attacks and defences as a page of Markdown: one block of rows for each attack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedrel.federation.engines.attacks import ABSENT, ATTACKS
from fedrel.files import write_text
from fedrel.runs.records import AttackTable

NONE = "none"  # the attack of an honest run
STOPPED = "stopped"


def write_attack_page(folder: Path, table: AttackTable, defences: Mapping[str, str]) -> Path:
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
        _row("none", 0, [_shown(table, NONE, 0, name) for name in used]),
    ]
    for attack in (ABSENT.name, *ATTACKS):
        for count in sorted({one.liars for one in table.cells if one.attack == attack}):
            lines.append(_row(attack, count, [_shown(table, attack, count, name) for name in used]))
    for count in sorted({one.liars for one in table.cells if one.liars}):
        lines.append(_row("**largest loss**", count, [_largest(table, count, name) for name in used]))
    lines += ["", "## The attacks", ""]
    lines += [f"- `{one.name}`: {one.about}" for one in (ABSENT, *ATTACKS.values())]
    lines += ["", "## The defences", ""]
    lines += [f"- `{name}`: {defences[name]}" for name in used]
    page = folder / "attacks.md"
    write_text(page, "\n".join(lines) + "\n")
    return page


def worst(table: AttackTable, liars: int, defence: str) -> float | None:
    """The largest loss of the metric under any attack by so many liars, against the honest run without a defence.

    None where a run is missing or was stopped.
    """
    honest = table.value(NONE, 0, NONE)
    values = [table.value(attack, liars, defence) for attack in ATTACKS]
    known = [value for value in values if value is not None]
    if honest is None or len(known) < len(values):
        return None
    return honest - min(known)


def _row(attack: str, liars: int, cells: list[str]) -> str:
    return f"| {attack} | {liars} | {' | '.join(cells)} |"


def _shown(table: AttackTable, attack: str, liars: int, defence: str) -> str:
    cell = table.cell(attack, liars, defence)
    if cell is None:
        return "-"
    return STOPPED if cell.value is None else f"{cell.value:.3f}"


def _largest(table: AttackTable, liars: int, defence: str) -> str:
    loss = worst(table, liars, defence)
    if loss is not None:
        return f"{loss:.3f}"
    return STOPPED if STOPPED in (_shown(table, attack, liars, defence) for attack in ATTACKS) else "-"
