"""A site's record of what left, for whoever answers for the data: one line an answer, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from rich.table import Column, Table
from rich.text import Text

from fedrel.privacy.audit import Audit, Entry, Field
from fedrel.studio.words import size


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
