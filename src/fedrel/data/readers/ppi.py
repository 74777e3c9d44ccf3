"""Protein interactions of five corpora (AIMed, BioInfer, HPRD50, IEPA, LLL) as CSV: do two proteins interact?

The columns are `docid`, `isValid` (True or False), `passage` and `passageid`, in any order, under a header. In the
passage the two proteins are masked as `PROTEIN1` and `PROTEIN2`, all others as `PROTEIN`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.structured_files import csv_rows
from fedrel.errors import UserError

OVERLAPPING = "rows whose passage lacks a mask of one of the two proteins, left out"
_COLUMNS = ("docid", "isValid", "passage")
_LABELS = {"true": "interaction", "false": NA}
_MASKS = ("PROTEIN1", "PROTEIN2")


class PPI(Reader):
    """The five corpora's comma-separated rows."""

    name = "ppi"
    relations = RelationMap(_LABELS.values())

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
        text, label = row["passage"], _LABELS.get(row["isValid"].strip().lower())
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
