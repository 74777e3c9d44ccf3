"""ChemProt as SciBERT (Beltagy et al. 2019) has it: JSON lines with the 13 fine labels and no pair without one.

In `text` the entity that comes first is marked `<< so >>` and the second `[[ so ]]`, whichever of them is the
chemical: the file does not say, so mentions have no type. Labels map to the five classes that BioCreative VI
evaluates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.readers.chemprot import ChemProt
from fedrel.data.readers.opennre import Record, records
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.errors import nearest

_GROUPS = {
    "UPREGULATOR": "CPR:3",
    "ACTIVATOR": "CPR:3",
    "INDIRECT-UPREGULATOR": "CPR:3",
    "DOWNREGULATOR": "CPR:4",
    "INHIBITOR": "CPR:4",
    "INDIRECT-DOWNREGULATOR": "CPR:4",
    "AGONIST": "CPR:5",
    "AGONIST-ACTIVATOR": "CPR:5",
    "AGONIST-INHIBITOR": "CPR:5",
    "ANTAGONIST": "CPR:6",
    "SUBSTRATE": "CPR:9",
    "PRODUCT-OF": "CPR:9",
    "SUBSTRATE_PRODUCT-OF": "CPR:9",
}


class ChemProtSciBERT(Reader):
    """SciBERT's JSON lines of ChemProt."""

    name = "chemprot-scibert"
    relations = ChemProt.relations

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file, without the markers: `<< >>` is the head; each line is a pair of its own."""
        for record in records(path, self):
            with self.problems:
                yield self._instance(record, relations)

    def _instance(self, record: Record, relations: RelationMap | None) -> Instance:
        marked, _ = record.sentence()
        parts = _parts(marked)
        if parts is None:
            raise record.error("expected `text` to have << one entity >> and then [[ the other ]]")
        relation = self.relation(_group(record), relations, record.file, record.line)
        before, first, between, second, _ = parts
        head_id, tail_id = own_ids(record.line, marked)
        head = Mention(head_id, first, len(before), len(before + first))
        start = head.end + len(between)
        tail = Mention(tail_id, second, start, start + len(second))
        return Instance("".join(parts), head, tail, relation)


def _parts(marked: str) -> list[str] | None:
    """The text before, in, between and after the two pairs of markers; each marker is the first that fits."""
    parts, done = [], 0
    for marker, least in (("<< ", 0), (" >>", 1), ("[[ ", 0), (" ]]", 1)):
        place = marked.find(marker, done + least)
        if place < 0:
            return None
        parts.append(marked[done:place])
        done = place + len(marker)
    return [*parts, marked[done:]]


def _group(record: Record) -> str:
    label = record.fields.get("label")
    if not isinstance(label, str) or label not in _GROUPS:
        hint = nearest(str(label), _GROUPS)
        raise record.error(f"expected one of ChemProt's 13 labels, found {label!r}; {hint}")
    return _GROUPS[label]
