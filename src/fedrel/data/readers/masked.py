"""Corpora whose rows ask about two masked entities, are they related or not: GAD and EU-ADR, and five of proteins.

GAD and EU-ADR (Bravo et al. 2015) are read as BioBERT's ten folds and BLURB's split have them: gene and disease,
or not. A line is `sentence label`, or `index sentence label` under a header of those names. The two entities are
masked as `@GENE$` and `@DISEASE$`; label 1 says that the sentence associates them.

Protein interactions of five corpora (AIMed, BioInfer, HPRD50, IEPA, LLL) come as CSV: do two proteins interact? The
columns are `docid`, `isValid` (True or False), `passage` and `passageid`, in any order, under a header. In the
passage the two proteins are masked as `PROTEIN1` and `PROTEIN2`, all others as `PROTEIN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.structured_files import csv_rows
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_HEADER = ["index", "sentence", "label"]
_ASSOCIATION = {"0": NA, "1": "association"}
OVERLAPPING = "rows whose passage lacks a mask of one of the two proteins, left out"
_COLUMNS = ("docid", "isValid", "passage")
_INTERACTION = {"true": "interaction", "false": NA}
_MASKS = ("PROTEIN1", "PROTEIN2")


class GAD(Reader):
    """GAD's and EU-ADR's tab-separated lines."""

    name = "gad"
    relations = RelationMap(_ASSOCIATION.values())

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
        if label not in _ASSOCIATION:
            raise UserError(f"expected the label 0 or 1, found {label!r}", file=path, line=number)
        head_id, tail_id = own_ids(number, text)
        head = _masked(text, "GENE", head_id, path, number)
        tail = _masked(text, "DISEASE", tail_id, path, number)
        return Instance(text, head, tail, self.relation(_ASSOCIATION[label], relations, path, number))


class PPI(Reader):
    """The five corpora's comma-separated rows."""

    name = "ppi"
    relations = RelationMap(_INTERACTION.values())

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: each row is a pair of its own, and a document's rows stay together.

        A passage that lacks a mask of the two is left out and counted: where one protein's name is part of the
        other's, the files have only one mask, and there is no pair to place.
        """
        for number, row in csv_rows(path, _COLUMNS, self.problems):
            with self.problems:
                yield from self._instances(row, relations, path, number)

    def _instances(
        self, row: dict[str, str], relations: RelationMap | None, path: Path, number: int
    ) -> Iterator[Instance]:
        text, label = row["passage"], _INTERACTION.get(row["isValid"].strip().lower())
        if label is None:
            problem = f"expected isValid to be True or False, found {row['isValid']!r}"
            raise UserError(problem, file=path, line=number)
        places = [text.find(mask) for mask in _MASKS]
        if "PROTEIN" not in text:
            hint = "write PROTEIN1 and PROTEIN2 in place of the two proteins that the row is about"
            raise UserError("no protein of the passage is masked", file=path, line=number, hint=hint)
        if min(places) < 0:
            self.problems.note(OVERLAPPING, 1, f"{path.name}:{number}", left_out=True)
            return
        head, tail = (
            Mention(identity, mask, at, at + len(mask), "PROTEIN")
            for identity, mask, at in zip(own_ids(number, text), _MASKS, places, strict=True)
        )
        yield Instance(
            text,
            head,
            tail,
            self.relation(label, relations, path, number),
            document=row["docid"],
        )


def _masked(text: str, kind: str, identity: str, path: Path, number: int) -> Mention:
    mask = f"@{kind}$"
    start = text.find(mask)
    if start < 0:
        hint = "write @GENE$ and @DISEASE$ in place of the two entities that the label is about"
        raise UserError(f"the sentence has no {mask}", file=path, line=number, hint=hint)
    return Mention(identity, mask, start, start + len(mask), kind)
