"""How sentences became columns before they were numbered in batches: one by one. Slow, and easy to follow."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from fedrel.data.readers.opennre import OpenNRE, records
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import Writer, numbering
from fedrel.data.text import tokenise


def read_line_by_line(
    path: Path, relations: RelationMap | None = None, source: str = "source", labelled: bool = True
) -> Iterator[Instance]:
    """What `OpenNRE.read` yields, by Python's own JSON and with every check of every field."""
    for record in records(path, OpenNRE()):
        yield record.instance(relations, source, labelled)


class OneByOne(SentenceCorpus):
    """A corpus that is written row by row."""

    __slots__ = ()

    @classmethod
    def writer(cls, folder: Path, relations: Sequence[str]) -> Writer:
        return RowWriter(folder, SentenceCorpus, relations)


class RowWriter(Writer):
    """Numbers one row at a time."""

    flush_every = 4096

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.numbers = {name: numbering() for name in ("words", "entities", "sources", "types")}
        self.numbers["types"][""] = 0
        self.names: dict[str, str] = {}
        self.pairs, self.triples = numbering(), numbering()

    def add(self, split: int, row: Instance) -> None:
        columns, number = self.columns, self.numbers
        spans = tokenise(row.text) if row.tokens is None else row.tokens
        for name, mention in (("head", row.head), ("tail", row.tail)):
            columns[name].append(bisect_right([end for _, end in spans], mention.start))
            columns[f"{name}_span"].extend((mention.start, mention.end))
            columns[f"{name}_type"].append(number["types"][mention.type])
        lowered = row.text.lower()
        same = len(lowered) == len(row.text)
        words = [lowered[a:b] if same else row.text[a:b].lower() for a, b in spans]
        columns["tokens"].extend(number["words"][word] for word in words)
        self.end("starts", len(spans))
        encoded = row.text.encode()
        columns["text"].frombytes(encoded)
        self.end("text_starts", len(encoded))
        columns["sentence"].append(_hash(encoded))
        columns["document"].append(_hash(row.document.encode()) if row.document else 0)
        head, tail = (number["entities"][one.id] for one in (row.head, row.tail))
        for one in (row.head, row.tail):
            self.names.setdefault(one.id, one.name)
        relation = self.relation(row.relation, "a row")
        pair = self.pairs[head, tail]
        columns["pair"].append(pair)
        columns["relation"].append(relation)
        columns["triple"].append(self.triples[pair, relation])
        columns["source"].append(number["sources"][row.source])
        columns["split"].append(split)
        columns["expresses"].append({None: -1, False: 0, True: 1}[row.expresses])
        self.rows += 1

    def tables(self) -> Mapping[str, Any]:
        return {**self.numbers, "names": self.names.values(), "relations": self.relations}

    def finish(self) -> None:
        for name, keys in (("pairs", self.pairs), ("triples", self.triples)):
            self.columns[name].extend(chain.from_iterable(keys))
        super().finish()


def _hash(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)
