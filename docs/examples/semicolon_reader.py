"""A reader for sentences in a spreadsheet: `sentence;head;relation;tail;ward`, with semicolons between columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text_files import lines
from fedrel.errors import UserError

COLUMNS = ["sentence", "head", "relation", "tail", "ward"]


class Semicolon(Reader):
    """`data.format = "semicolon"`: one sentence a line, under a header; the ward is the sentence's source."""

    name = "semicolon"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """Read a file, which may also be compressed."""
        for number, line in lines(path):
            row = next(csv.reader([line], delimiter=";"), [])
            if not row or (number == 1 and row == COLUMNS):
                continue
            if len(row) != len(COLUMNS):
                problem = f"expected {len(COLUMNS)} columns ({', '.join(COLUMNS)}), found {len(row)}"
                raise UserError(problem, file=path, line=number, hint="put a text with semicolons in quotes")
            text, head, relation, tail, ward = row
            if relations is not None:
                relations.check(relation, path, number)
            yield Instance(
                text, mention(text, head, path, number), mention(text, tail, path, number), relation, ward
            )


def mention(text: str, name: str, path: Path, line: int) -> Mention:
    """Where the sentence names an entity; here an entity's name is also its id."""
    start = text.find(name)
    if not name or start < 0:
        raise UserError(f"the sentence does not name {name!r}", file=path, line=line)
    return Mention(name, name, start, start + len(name))
