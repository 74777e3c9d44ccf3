"""How a federation is doing: who is connected, when each was last heard of, the round, the bytes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from fedrel.deployment.folders import CoordinatorFolder
from fedrel.deployment.nodes import by_site
from fedrel.errors import UserError
from fedrel.privacy.audit import Audit, Entry, Field
from fedrel.studio.formatting import size


@dataclass(frozen=True)
class SiteStatus:
    """One site; what is not known is None."""

    name: str
    node: str  # what Flower says: registered, online, offline
    sentences: int | None
    last_answer: float | None  # seconds since the epoch
    round: int | None


@dataclass(frozen=True)
class Status:
    """A federation, and its latest run if there was one."""

    sites: list[SiteStatus]
    run: str | None
    round: int
    up: int  # bytes of all whole rounds
    down: int
    refused: list[str]  # of the last whole round


def status(folder: CoordinatorFolder) -> Status:
    """What the superlink and the latest run's folder say."""
    names = folder.federation.sites
    try:
        known = by_site(folder)
    except UserError:
        known = dict.fromkeys(names, "coordinator not running")
    out = _latest(folder)
    notes = _notes(out)
    lines = _lines(out)
    return Status(
        sites=[_site(name, known, notes) for name in names],
        run=out.name if out else None,
        round=lines[-1]["round"] if lines else 0,
        up=sum(line["bytes"]["up"] for line in lines),
        down=sum(line["bytes"]["down"] for line in lines),
        refused=[f"{names[one['site']]} {one['reason']}" for one in lines[-1]["refused"]] if lines else [],
    )


def status_table(found: Status) -> Table:
    """The same for a terminal."""
    from rich.table import Table

    title = f"run {found.run}, round {found.round}" if found.run else "no run yet"
    table = Table("site", "node", "sentences", "last answer", "round", title=title, title_justify="left")
    for site in found.sites:
        held = "" if site.sentences is None else f"{site.sentences:,}"
        table.add_row(site.name, site.node, held, _ago(site.last_answer), str(site.round or ""))
    refused = "".join(f"\nleft out: {one}" for one in found.refused)
    table.caption = f"from the sites {size(found.up)}, to the sites {size(found.down)}{refused}"
    table.caption_justify = "left"
    return table


def _site(name: str, known: dict[str, str], notes: dict[str, dict[str, Any]]) -> SiteStatus:
    note = notes.get(name, {})
    return SiteStatus(
        name=name,
        node=known.get(name, "not registered"),
        sentences=note.get("sentences"),
        last_answer=note.get("last_answer"),
        round=note.get("round"),
    )


def _latest(folder: CoordinatorFolder) -> Path | None:
    """The run folder that was written to last."""
    written = [(file.stat().st_mtime, file.parent) for file in folder.runs.glob("*/federation.json")]
    return max(written)[1] if written else None


def _notes(out: Path | None) -> dict[str, dict[str, Any]]:
    if out is None:
        return {}
    return {one["name"]: one for one in _parsed(out / "federation.json")["sites"]}


def _lines(out: Path | None) -> list[dict[str, Any]]:
    file = out / "metrics.jsonl" if out else None
    if file is None or not file.exists():
        return []
    return [_parsed(file, line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def _parsed(file: Path, text: str | None = None) -> dict[str, Any]:
    """What a file of a run, or a line of it, says."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8") if text is None else text)
    except ValueError as error:
        problem = f"cannot be read: {error}"
        raise UserError(problem, file=file, hint="move that run's folder away") from error
    return found


def _ago(moment: float | None) -> str:
    if moment is None:
        return ""
    seconds = max(time.time() - moment, 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def record_table(audit: Audit) -> Table:
    """What left the site, line by line, and the sums; nothing is cut off in a terminal of 80 columns."""
    table = Table(
        Column("line", justify="right", no_wrap=True),
        Column("time (UTC)", no_wrap=True),
        Column("round", justify="right", no_wrap=True),
        Column("what left", ratio=1, overflow="fold"),
        Column("bytes", justify="right", no_wrap=True),
        show_lines=True,
    )
    for line in audit.lines:
        entry = line.entry
        cells = (
            str(line.number),
            entry.time.replace("T", " ").removesuffix("+00:00"),
            str(entry.round),
            f"{entry.message} (SHA-256 {entry.digest[:8]})\n{entry.note or contents(entry.fields)}",
            f"{entry.bytes:,}",
        )
        table.add_row(*map(_plain, cells))
    table.caption = _plain(summary(audit))
    table.caption_justify = "left"
    return table


def contents(fields: Sequence[Field]) -> str:
    """The fields of an answer; many tensors under one name are counted, not listed."""
    groups: dict[str, list[Field]] = {}
    for field in fields:
        groups.setdefault(field.name.partition("/")[0], []).append(field)
    return "; ".join(f"{name}: {_described(group)}" for name, group in groups.items())


def summary(audit: Audit) -> str:
    """How much left in all, by kind."""
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for entry in _entries(audit):
        sizes[entry.message] += entry.bytes
        times[entry.message] += 1
    kinds = (f"{times[kind]:,} {kind} ({size(sizes[kind])})" for kind in sorted(times))
    return f"in all: {', '.join(kinds) or 'nothing left this site'}"


def _plain(text: str) -> Text:
    """Just these characters: a note may quote the coordinator, whose words must not style, move or hide any."""
    return Text("".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text))


def _entries(audit: Audit) -> list[Entry]:
    return [line.entry for line in audit.lines]


def _described(group: Sequence[Field]) -> str:
    if len(group) == 1 and not group[0].shape:
        return f"one {group[0].dtype}"
    if len(group) == 1:
        return f"{' by '.join(map(str, group[0].shape))} {group[0].dtype}"
    numbers = sum(prod(field.shape) for field in group)
    kinds = ", ".join(sorted({field.dtype for field in group}))
    return f"{len(group)} arrays of {numbers:,} numbers ({kinds})"
