"""Tables in which a row is a sentence with two entities: CSV and TSV, Parquet, Hugging Face's `datasets`.

`[data.columns]` says which column has what. Where it names no column for the entities, `<e1>...</e1>` and
`<e2>...</e2>` mark them in the text, unless there are columns `head` and `tail`; where it names no column for their
places, their names are looked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrel.data.mentions import find_pair, unmarked
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.structured_files import csv_rows, dataset_rows, parquet_rows
from fedrel.data.text import Span, tokenise
from fedrel.errors import UserError

ROLES = ("text", "head", "tail", "relation", "source")
ALL_ROLES = (
    *ROLES,
    *(f"{end}_{what}" for end in ("head", "tail") for what in ("id", "type", "start", "end")),
)
Row = Mapping[str, Any]


class Columns(Reader):
    """What the three kinds of tables have in common: how a row becomes an instance."""

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Iterator[Instance]:
        """The instances of a table; `columns` are the names of its columns by what they have."""
        named = {"text": "text", "relation": "relation", **(columns or {})}
        usual = [] if "head" in named else [role for role in ALL_ROLES if role not in named]
        for number, row in self.rows(path, list(dict.fromkeys(named.values())), usual):
            with self.problems:
                roles = {role: row[role] for role in usual if role in row}
                roles |= {role: row[name] for role, name in named.items()}
                yield self._instance(roles, relations, path, number)

    def rows(self, path: Path, required: Sequence[str], usual: Sequence[str]) -> Iterator[tuple[int, Row]]:
        """The rows of the table by column, with their lines or numbers; `usual` columns need not be there."""
        raise NotImplementedError

    def _instance(self, row: Row, relations: RelationMap | None, path: Path, number: int) -> Instance:
        def error(problem: str, hint: str = "") -> UserError:
            return UserError(problem, file=path, line=number, hint=hint)

        text, label = row["text"], row["relation"]
        if not isinstance(text, str) or not text.strip():
            raise error(f"expected a text, found {text!r}")
        if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
            raise error(f"expected a relation, found {label!r}")
        relation = self.relation(str(label).strip(), relations, path, number)
        source = str(row.get("source") or "")
        if "head" not in row or "tail" not in row:
            try:
                found = unmarked(text)
            except UserError as problem:
                raise error(
                    problem.problem, f"{problem.hint}, or name head and tail in [data.columns]"
                ) from problem
            return replace(found, relation=relation, source=source)
        names = [str(row[end] or "").strip() for end in ("head", "tail")]
        if not all(names):
            raise error("the head's or the tail's name is empty")
        places = _places(row, text, names, error)
        head, tail = (
            Mention(str(row.get(f"{end}_id") or name), name, *place, str(row.get(f"{end}_type") or ""))
            for end, name, place in zip(("head", "tail"), names, places, strict=True)
        )
        return Instance(text, head, tail, relation, source)


class CSV(Columns):
    """CSV, or cells separated by tabs or semicolons."""

    name = "csv"

    def rows(self, path: Path, required: Sequence[str], usual: Sequence[str]) -> Iterator[tuple[int, Row]]:
        """The lines below the header."""
        return csv_rows(path, required, self.problems)

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write a column for each thing that an instance has."""
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(ALL_ROLES)
            for row in rows:
                table.writerow(_cells(row, self.none_label))


class Parquet(Columns):
    """A Parquet file, or a folder of them."""

    name = "parquet"

    def rows(self, path: Path, required: Sequence[str], usual: Sequence[str]) -> Iterator[tuple[int, Row]]:
        """The rows of all files."""
        return parquet_rows(path, required, usual)


class HuggingFace(Columns):
    """A folder that Hugging Face's `datasets` saved; one split of it."""

    name = "datasets"

    def rows(self, path: Path, required: Sequence[str], usual: Sequence[str]) -> Iterator[tuple[int, Row]]:
        """The rows of its Arrow files; class labels by their names."""
        return dataset_rows(path, required, usual)


def _places(row: Row, text: str, names: Sequence[str], error: Any) -> list[Span]:
    """Where head and tail are: at the characters that the row says, or where their names are found."""
    if any(f"{end}_{edge}" not in row for end in ("head", "tail") for edge in ("start", "end")):
        found = find_pair(names[0], names[1], text, tokenise(text))
        for name, place in zip(names, found, strict=True):
            if place is None:
                raise error(
                    f"the name {name!r} is not in the text", "write it as the text does, in whole words"
                )
        return [place for place in found if place is not None]
    places = []
    for end, name in zip(("head", "tail"), names, strict=True):
        given = [row.get(f"{end}_start"), row.get(f"{end}_end")]
        if not all(str(one).strip().isdecimal() for one in given):
            raise error(f"expected whole numbers as the {end}'s start and end, found {given}")
        start, after = (int(str(one).strip()) for one in given)
        if text[start:after] != name:
            problem = f"expected {name!r} at [{start}, {after}), found {text[start:after]!r}"
            raise error(problem, "characters count from 0; the end is the first one after the name")
        places.append((start, after))
    return places


def _cells(row: Instance, none_label: str) -> list[object]:
    relation = none_label if row.relation == NA else row.relation
    cells: list[object] = [row.text, row.head.name, row.tail.name, relation, row.source]
    for mention in (row.head, row.tail):
        cells += [mention.id, mention.type, mention.start, mention.end]
    return cells
