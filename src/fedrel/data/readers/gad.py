"""GAD and EU-ADR (Bravo et al. 2015) as BioBERT's ten folds and BLURB's split have them: gene and disease, or not.

A line is `sentence label`, or `index sentence label` under a header of those names. The two entities are masked
as `@GENE$` and `@DISEASE$`; label 1 says that the sentence associates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_HEADER = ["index", "sentence", "label"]
_LABELS = {"0": NA, "1": "association"}


class GAD(Reader):
    """GAD's and EU-ADR's tab-separated lines."""

    name = "gad"
    relations = RelationMap(_LABELS.values())

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: the gene is the head, the disease the tail; each line is a pair of its own."""
        expected = _HEADER[1:]
        for number, line in lines(path):
            columns = line.split("\t")
            if number == 1 and columns == _HEADER:
                expected = _HEADER
                continue
            if line.strip():
                with self.problems:
                    yield self._instance(columns, expected, relations, path, number)

    def _instance(
        self,
        columns: Sequence[str],
        expected: Sequence[str],
        relations: RelationMap | None,
        path: Path,
        number: int,
    ) -> Instance:
        if len(columns) != len(expected):
            problem = f"expected {len(expected)} columns ({', '.join(expected)}), found {len(columns)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        text, label = columns[-2], columns[-1].strip()
        if label not in _LABELS:
            raise UserError(f"expected the label 0 or 1, found {label!r}", file=path, line=number)
        head_id, tail_id = own_ids(number, text)
        head = _masked(text, "GENE", head_id, path, number)
        tail = _masked(text, "DISEASE", tail_id, path, number)
        return Instance(text, head, tail, self.relation(_LABELS[label], relations, path, number))


def _masked(text: str, kind: str, identity: str, path: Path, number: int) -> Mention:
    mask = f"@{kind}$"
    start = text.find(mask)
    if start < 0:
        hint = "write @GENE$ and @DISEASE$ in place of the two entities that the label is about"
        raise UserError(f"the sentence has no {mask}", file=path, line=number, hint=hint)
    return Mention(identity, mask, start, start + len(mask), kind)
