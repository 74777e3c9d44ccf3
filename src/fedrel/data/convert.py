"""Data from one format into another. What was written is read again, so that nothing is lost unseen.

A reader with a method `write` can be written to. Whether a format can hold what another says need not be declared:
rows are compared with what comes back. Spacing, and where sentences and tokens end, may change; words, entities,
types, relations and all else that is said of them may not.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedrel.data.annotations import Document
from fedrel.data.readers import READERS, Reader, reader
from fedrel.data.sentences import Instance, Mention
from fedrel.errors import UserError


@dataclass(frozen=True)
class Converted:
    """How much was written, and how often what was lost."""

    rows: int
    unit: str
    lost: Mapping[str, int]


def writers() -> list[str]:
    """The formats that can be written, by name."""
    return [name for name, one in READERS.all().items() if hasattr(one, "write")]


def convert(
    source: Path,
    format: str,
    target: Path,
    to: str,
    *,
    columns: Mapping[str, str] | None = None,
    none_label: str | None = None,
    lossy: bool = False,
) -> Converted:
    """Read `source` and write `target`, which must not exist; a `UserError` if that loses anything.

    With `lossy`, what the format cannot hold is counted instead.
    """
    read, written = reader(format, none_label=none_label), reader(to)
    write = getattr(written, "write", None)
    if write is None:
        problem = f"the format {to!r} cannot be written"
        raise UserError(problem, hint=f"choose {', '.join(writers())}")
    if read.unit != written.unit:
        problem = f"{format!r} has {read.unit}, and {to!r} holds {written.unit}"
        fitting = [name for name in writers() if READERS.find(name).unit == read.unit]
        raise UserError(problem, hint=f"choose {', '.join(fitting)}")
    if target.exists():
        raise UserError("is there already", file=target, hint="choose another name")
    options = {"columns": dict(columns)} if columns and "columns" in read.options() else {}
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".convert-") as scratch:
        part = Path(scratch) / target.name
        write(_all(read, source, options), part)
        rows, lost = _compare(read, source, options, written, part, lossy=lossy)
        shutil.move(part, target)
    return Converted(rows, read.unit, lost)


def _all(chosen: Reader, path: Path, options: Mapping[str, Any]) -> Iterator[Any]:
    return chosen.read(path, **_everything(chosen), **options)


def _everything(chosen: Reader) -> dict[str, Any]:
    """Options with which a reader tells all that a file says: ids as they are, and every pair both ways."""
    return {"id_separator": ""} if "id_separator" in chosen.options() else {}


def _compare(
    read: Reader, source: Path, options: Mapping[str, Any], written: Reader, part: Path, *, lossy: bool
) -> tuple[int, dict[str, int]]:
    """How many rows there are, and what of them is not in what was written."""
    lost: Counter[str] = Counter()
    rows = 0
    pairs = zip_longest(_all(read, source, options), _all(written, part, {}))
    for rows, (there, here) in enumerate(pairs, 1):
        if there is None or here is None:
            raise UserError(f"row {rows} of {source} is another in {written.name!r}, or none")
        missing = _missing(there, here)
        if missing and not lossy:
            problem = f"{written.name!r} cannot hold {', '.join(missing)} of row {rows}"
            hint = "choose another format, or --lossy to do without"
            raise UserError(problem, file=source, hint=hint)
        lost.update(missing)
    return rows, dict(lost)


def _missing(there: Any, here: Any) -> list[str]:
    """The names of what two rows differ in."""
    one, other = ((_said if isinstance(row, Document) else _stated)(row) for row in (there, here))
    return [what for what in one if one[what] != other[what]]


def _stated(row: Instance) -> dict[str, Any]:
    """What an instance says; places count visible characters."""

    def place(mention: Mention) -> tuple[int, int]:
        return _visible(row.text, mention.start), _visible(row.text, mention.end)

    return {
        "the words": "".join(row.text.split()),
        "the entities' places": (place(row.head), place(row.tail)),
        "the entities' ids": (row.head.id, row.tail.id),
        "the entities' names": (row.head.name, row.tail.name),
        "the entities' types": (row.head.type, row.tail.type),
        "the relation": row.relation,
        "the source": row.source,
        "whether it states the relation": row.expresses,
    }


def _said(row: Document) -> dict[str, Any]:
    """What a document says, whatever the order of its entities."""
    ids = [entity.id for entity in row.entities]
    places = {
        (entity.id, _visible(row.text, mention.start), _visible(row.text, mention.end))
        for entity in row.entities
        for mention in entity.mentions
    }
    return {
        "the id": row.id,
        "the words": "".join(row.text.split()),
        "the entities' ids": sorted(ids),
        "the entities' types": sorted((entity.id, entity.type) for entity in row.entities),
        "the entities' places": places,
        "the relations": {(ids[fact.head], fact.relation, ids[fact.tail]) for fact in row.facts},
        "the facts' attributes": {
            (ids[fact.head], fact.relation, ids[fact.tail], fact.attribute) for fact in row.facts
        },
        "the facts' evidence": {
            (ids[fact.head], fact.relation, ids[fact.tail], bool(fact.evidence)) for fact in row.facts
        },
    }


def _visible(text: str, place: int) -> int:
    return len("".join(text[:place].split()))
