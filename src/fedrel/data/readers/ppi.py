"""Protein interactions of five corpora (AIMed, BioInfer, HPRD50, IEPA, LLL) as CSV: do two proteins interact?

The columns are `docid`, `isValid` (True or False), `passage` and `passageid`, in any order, under a header. In the
passage the two proteins are masked as `PROTEIN1` and `PROTEIN2`, all others as `PROTEIN`.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_log = logging.getLogger(__name__)

_COLUMNS = ("docid", "isValid", "passage")
_LABELS = {"true": "interaction", "false": NA}


class PPI(Reader):
    """The five corpora's comma-separated rows."""

    name = "ppi"
    relations = RelationMap(_LABELS.values())

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: each row is a pair of its own, and a document's rows stay together.

        A passage that lacks one of the two masks is left out and counted: where one protein's name is part of the
        other's, the files have only one mask, and there is no pair to place.
        """
        rows = csv.reader(line for _, line in lines(path))
        header = next(rows, [])
        if missing := [name for name in _COLUMNS if name not in header]:
            problem = f"expected the columns {', '.join(_COLUMNS)} in the first line, found no {missing[0]}"
            raise UserError(problem, file=path, line=1)
        left_out = 0
        for number, cells in _numbered(rows, path):
            if len(cells) != len(header):
                problem = f"expected {len(header)} columns, found {len(cells)}"
                raise UserError(problem, file=path, line=number)
            row = dict(zip(header, cells, strict=True))
            label = _LABELS.get(row["isValid"].strip().lower())
            if label is None:
                problem = f"expected isValid to be True or False, found {row['isValid']!r}"
                raise UserError(problem, file=path, line=number)
            text, ids = row["passage"], own_ids(number, row["passage"])
            places = [text.find(mask) for mask in ("PROTEIN1", "PROTEIN2")]
            if min(places) < 0:
                left_out += 1
                continue
            if relations is not None:
                relations.check(label, path, number)
            head, tail = (
                Mention(identity, text[at : at + len("PROTEIN1")], at, at + len("PROTEIN1"), "PROTEIN")
                for identity, at in zip(ids, places, strict=True)
            )
            yield Instance(text, head, tail, label, document=row["docid"])
        if left_out:
            _log.warning("%s: %d rows left out, whose passage lacks one of the two masks", path, left_out)


def _numbered(rows: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its last line."""
    try:
        for cells in rows:
            yield rows.line_num, cells
    except csv.Error as error:
        raise UserError(f"is not CSV: {error}", file=path, line=rows.line_num) from error
