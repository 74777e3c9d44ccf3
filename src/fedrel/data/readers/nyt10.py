"""NYT10 (Riedel et al. 2010) in the tab form of Lin et al. 2016.

A line is `mid1 mid2 name1 name2 relation sentence`, and the sentence ends with `###END###`, after a space or
as a seventh column. In it an entity's words are joined by `_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fedrel.data.mentions import find_pair
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import tokenise
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_END = "###END###"


class NYT10(Reader):
    """NYT10's tab-separated lines."""

    name = "nyt10"
    version = 2

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file; both names must be in the sentence, as whole tokens."""
        for number, line in lines(path):
            if line.strip():
                with self.problems:
                    yield self._instance(line, relations, path, number)

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write six columns a sentence; tabs and line ends in the text become spaces."""
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                relation = self.none_label if row.relation == NA else row.relation
                cells = [row.head.id, row.tail.id, row.head.name, row.tail.name, relation, row.text]
                file.write("\t".join(" ".join(cell.split()) for cell in cells) + f" {_END}\n")

    def _instance(self, line: str, relations: RelationMap | None, path: Path, number: int) -> Instance:
        columns = line.split("\t")
        if len(columns) < 6:
            problem = f"expected 6 columns (2 ids, 2 names, relation, sentence), found {len(columns)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        head_id, tail_id, head_name, tail_name, relation, sentence = columns[:6]
        text = sentence.strip().removesuffix(_END).rstrip()
        tokens = tokenise(text)
        if not tokens:
            raise UserError("the sentence is empty", file=path, line=number)
        head, tail = find_pair(head_name, tail_name, text, tokens)
        if head is None or tail is None:
            problem = f"the name {head_name if head is None else tail_name!r} is not in the sentence"
            hint = "write it as the sentence does, in whole words"
            raise UserError(problem, file=path, line=number, hint=hint)
        return Instance(
            text,
            Mention(head_id, head_name.replace("_", " "), *head),
            Mention(tail_id, tail_name.replace("_", " "), *tail),
            self.relation(relation, relations, path, number),
            tokens=tuple(tokens),
        )
