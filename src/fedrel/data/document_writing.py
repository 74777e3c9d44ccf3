"""A stream of documents to columns on disk, in one pass and with little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.annotations import places
from fedrel.data.documents import (
    COLUMNS,
    DOCUMENTS,
    HANDLED,
    Document,
    DocumentCorpus,
    Fact,
    Mention,
    open_documents,
)
from fedrel.data.sentences import NA
from fedrel.data.store import column_path, write_index
from fedrel.errors import UserError
from fedrel.files import atomic_folder

_STARTS = ("sentence", "token", "entity", "mention", "pair", "fact", "evidence", "text")


class Writer:
    """Takes documents one at a time; keeps only the distinct ids, names, types and relations."""

    def __init__(self, folder: Path, relations: Sequence[str]) -> None:
        self.rows = 0
        self.handled: Counter[str] = Counter(dict.fromkeys(HANDLED, 0))
        self._folder = folder
        self._column = {name: array(column.code) for name, column in COLUMNS.items()}
        self._totals = dict.fromkeys(_STARTS, 0)
        for of in _STARTS:
            self._column[f"{of}_starts"].append(0)
        self._relations = {name: number for number, name in enumerate(relations)}
        self._ids: list[str] = []
        self._entities, self._types, self._names = _numbering(), _numbering(), _numbering()

    def add(self, split: int, document: Document) -> None:
        """The next document. Readers check it, with file and line at hand; what slipped by is refused here."""
        column = self._column
        column["split"].append(split)
        self._ids.append(document.id)
        encoded = document.text.encode()
        column["text"].frombytes(encoded)
        self._end("text", len(encoded))
        for sentence in document.sentences:
            column["tokens"].extend(chain.from_iterable(sentence))
            self._end("token", len(sentence))
        self._end("sentence", len(document.sentences))
        homes = self._add_entities(document)
        self._add_pairs(document, homes)
        self.handled.update(document.handled)
        self.handled["left_out_pairs"] += int(document.left_out.sum())
        self.rows += 1

    def flush(self) -> None:
        """Move what is buffered to disk."""
        for name, values in self._column.items():
            with column_path(self._folder, name).open("ab") as file:
                file.write(values)
            del values[:]

    def finish(self) -> None:
        """Write the tables and seal the folder."""
        tables: dict[str, Iterable[str]] = {
            "ids": self._ids,
            "entities": self._entities,
            "types": self._types,
            "names": self._names,
            "relations": self._relations,
            "handled": HANDLED,
        }
        for name, strings in tables.items():
            encoded = [string.encode() for string in strings]
            self._column[f"{name}_text"].frombytes(b"".join(encoded))
            self._column[f"{name}_starts"].extend(accumulate(map(len, encoded), initial=0))
        self._column["handled_counts"].extend(self.handled[name] for name in HANDLED)
        self.flush()
        write_index(self._folder, DOCUMENTS)

    def _end(self, of: str, size: int) -> None:
        """The next one ends `size` items further on."""
        self._totals[of] += size
        self._column[f"{of}_starts"].append(self._totals[of])

    def _add_entities(self, document: Document) -> list[set[int]]:
        """The sentences in which each entity is mentioned."""
        column = self._column
        tokens = [token for sentence in document.sentences for token in sentence]
        starts, ends = [start for start, _ in tokens], [end for _, end in tokens]
        last_tokens = list(accumulate(map(len, document.sentences)))  # of each sentence, plus one
        homes: list[set[int]] = []
        for entity in document.entities:
            column["entity_id"].append(self._entities[entity.id])
            column["entity_type"].append(self._types[entity.type])
            homes.append(set())
            for mention in entity.mentions:
                first = bisect_right(ends, mention.start)
                after = bisect_left(starts, mention.end)
                sentence = bisect_right(last_tokens, first)
                whole = first < after and starts[first] >= mention.start and ends[after - 1] <= mention.end
                if not whole or after > last_tokens[sentence]:
                    raise _misplaced(document, mention)
                column["mention_chars"].extend((mention.start, mention.end))
                column["mention_tokens"].extend((first, after))
                column["mention_sentence"].append(sentence)
                column["mention_name"].append(self._names[mention.name])
                homes[-1].add(sentence)
            self._end("mention", len(entity.mentions))
        self._end("entity", len(document.entities))
        return homes

    def _add_pairs(self, document: Document, homes: Sequence[set[int]]) -> None:
        column, pairs = self._column, np.ascontiguousarray(document.pairs, np.int32).reshape(-1, 2)
        column["pairs"].frombytes(pairs.tobytes())
        column["left_out"].frombytes(document.left_out.astype(np.int8).tobytes())
        column["intra"].frombytes(_intra(pairs, homes, len(document.sentences)).tobytes())
        self._end("pair", len(pairs))
        facts: defaultdict[int, list[Fact]] = defaultdict(list)
        ends = np.array([(fact.head, fact.tail) for fact in document.facts], np.int64)
        for place, fact in zip(places(pairs, ends).tolist(), document.facts, strict=True):
            if place < 0 or document.left_out[place]:
                raise UserError(f"document {document.id}: a fact of {fact.relation!r} is about no pair")
            facts[place].append(fact)
        counts = np.zeros(len(pairs), np.int64)
        for place in sorted(facts):
            counts[place] = len(facts[place])
            for fact in facts[place]:
                if fact.relation not in self._relations:
                    problem = f"document {document.id}: the relation {fact.relation!r} is not in the map"
                    raise UserError(problem)
                column["fact_relation"].append(self._relations[fact.relation])
                column["evidence"].extend(fact.evidence)
                self._end("evidence", len(fact.evidence))
        column["fact_starts"].frombytes((self._totals["fact"] + counts.cumsum()).tobytes())
        self._totals["fact"] += len(document.facts)


def _intra(pairs: NDArray[np.int32], homes: Sequence[set[int]], sentences: int) -> NDArray[np.int8]:
    """Are both entities of a pair mentioned in one sentence somewhere?"""
    at = np.zeros((len(homes), sentences), np.float32)
    for entity, home in enumerate(homes):
        at[entity, list(home)] = 1
    together = at @ at.T > 0
    return together[pairs[:, 0], pairs[:, 1]].astype(np.int8)


def _numbering() -> defaultdict[str, Any]:
    """A dictionary that gives each new key the next number."""
    numbers: defaultdict[str, Any] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _misplaced(document: Document, mention: Mention) -> UserError:
    place = f"[{mention.start}, {mention.end}) of {len(document.text)} characters"
    return UserError(
        f"document {document.id}: {mention.name!r} at {place} is not whole tokens of one sentence"
    )


def build_documents(
    documents: Iterable[tuple[int, Document]],
    folder: Path,
    relations: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> DocumentCorpus:
    """Write (split, document) pairs to `folder` as columns, in one pass; it appears whole or not at all.

    `progress` is told now and then how many documents are in.
    """
    if not relations or relations[0] != NA:
        raise UserError(f"the first relation must be {NA!r}, found {list(relations[:1])}")
    with atomic_folder(folder) as part:
        writer = Writer(part, relations)
        for count, (split, document) in enumerate(documents, 1):
            writer.add(split, document)
            if count % 256 == 0:
                writer.flush()
                if progress:
                    progress(count)
        writer.finish()
        if progress:
            progress(writer.rows)
    return open_documents(folder)
