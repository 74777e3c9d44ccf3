"""Five corpora of protein interactions (Pyysalo et al. 2008) as CSV: AIMed, BioInfer, HPRD50, IEPA and LLL.

The columns are `docid`, `isValid` (whether the two proteins interact), `passage` and `passageid`. In the passage
the two proteins are masked as `PROTEIN1` and `PROTEIN2`, others as `PROTEIN`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.tables import csv_rows
from fedrel.data.text import tokenise, with_whole_mentions
from fedrel.errors import UserError

OVERLAPPING = "rows whose two proteins overlap, so that only one is masked, left out"
_COLUMNS = ("docid", "isValid", "passage")
_LABELS = {"true": "interaction", "false": NA}


class PPI(Reader):
    """Tables of protein pairs."""

    name = "ppi"
    relations = RelationMap(_LABELS.values())

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file; the source is the corpus (`AIMed` of `AIMed.d0`), each row a pair of its own."""
        for number, row in csv_rows(path, _COLUMNS, self.problems):
            with self.problems:
                yield from self._instances(row, relations, path, number)

    def _instances(
        self, row: dict[str, str], relations: RelationMap | None, path: Path, number: int
    ) -> Iterator[Instance]:
        text, label = row["passage"], row["isValid"].strip().lower()
        if label not in _LABELS:
            problem = f"expected isValid to be True or False, found {row['isValid']!r}"
            raise UserError(problem, file=path, line=number)
        found = [re.search(rf"{mask}(?!\d)", text) for mask in ("PROTEIN1", "PROTEIN2")]
        masks = [mask for mask in found if mask is not None]
        if not masks:
            hint = "write PROTEIN1 and PROTEIN2 in place of the two proteins that the row is about"
            raise UserError("the passage has no PROTEIN1 and no PROTEIN2", file=path, line=number, hint=hint)
        if len(masks) == 1:
            self.problems.note(OVERLAPPING, 1, f"{path.name}:{number}")
            return
        mentions = [
            Mention(identity, mask[0], *mask.span(), "PROTEIN")
            for identity, mask in zip(own_ids(number, text), masks, strict=True)
        ]
        head, tail = mentions
        # Masks are joined to words and to each other (PROTEIN1/PROTEIN2, PROTEIN1-induced): they are cut out.
        places = [(one.start, one.end) for one in mentions]
        [tokens] = with_whole_mentions([tokenise(text)], places, Counter())
        relation = self.relation(_LABELS[label], relations, path, number)
        source = row["docid"].partition(".")[0]
        yield Instance(text, head, tail, relation, source, tokens=tuple(tokens))
