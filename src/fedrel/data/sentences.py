"""Sentences with two marked entities: what readers yield (`Instance`), and the corpus that is built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrel.data.bags import Bags, grouped_by
from fedrel.data.store import (
    Bytes,
    Corpus,
    Int8s,
    Int32Pairs,
    Int32s,
    Int64s,
    Ints,
    Starts,
    Strings,
    Writer,
    numbering,
)
from fedrel.data.word_numbers import WordNumbers
from fedrel.errors import UserError


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity in a sentence: its id in the knowledge base, its name, and its characters [start, end).

    `type` is the kind of thing it is (`GENE`, `problem`), where that is known: the label that entity blinding
    puts in its place.
    """

    id: str
    name: str
    start: int
    end: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A sentence, the pair it mentions and the relation it is labelled with.

    `tokens` are the character spans of a sentence that came tokenised; without them the corpus tokenises.
    `expresses` is the truth where it is known (the built-in world, judged sentences): whether the sentence states
    the relation or only mentions the pair. `document` is the id of the text that the sentence is from, where it is
    known: a split then keeps all of it on one side.
    """

    text: str
    head: Mention
    tail: Mention
    relation: str
    source: str = ""
    expresses: bool | None = None
    tokens: tuple[tuple[int, int], ...] | None = None
    document: str = ""


def own_ids(line: int, text: str) -> tuple[str, str]:
    """Ids for head and tail that no other line has, for a corpus that does not say who its entities are.

    Every bag is then one sentence, and a split by pair is one by sentence. The ids follow from the line's
    number and content, not from the file's name: the corpus is the same wherever its files are kept.
    """
    digest = blake2b(text.encode(), digest_size=6).hexdigest()
    return f"{line}:{digest}:head", f"{line}:{digest}:tail"


@dataclass(frozen=True, slots=True, eq=False)
class SentenceCorpus(Corpus):
    """`N` instances with `T` tokens in all, `P` entity pairs and `Q` triples."""

    prefix: ClassVar[str] = "corpus"
    format: ClassVar[int] = 3
    first_format: ClassVar[int] = 2
    later: ClassVar[frozenset[str]] = frozenset({"document"})
    unit: ClassVar[str] = "sentences"

    folder: Path
    fingerprint: str

    tokens: Int32s  # [T] into `words`
    starts: Starts  # [N + 1], instance n is tokens[starts[n]:starts[n + 1]]
    head: Int32s  # [N] the head's first token, counted within its sentence
    tail: Int32s  # [N] likewise the tail's
    head_span: Int32Pairs  # [N, 2] the head's characters [start, end) in its text
    tail_span: Int32Pairs  # [N, 2]
    head_type: Int32s  # [N] into `types`
    tail_type: Int32s  # [N]
    pair: Int32s  # [N] into `pairs`
    pairs: Int32Pairs  # [P, 2] head and tail, into `entities`
    relation: Int32s  # [N] into `relations`
    triple: Int32s  # [N] into `triples`
    triples: Int32Pairs  # [Q, 2] into `pairs` and `relations`
    source: Int32s  # [N] into `sources`
    split: Int8s  # [N] TRAIN, DEV or TEST
    expresses: Int8s  # [N] whether the text states the relation: 1 yes, 0 no, -1 not known
    sentence: Int64s  # [N] a hash of the text: equal for one sentence under two labels
    document: Int64s  # [N] a hash of the id of the text that it is from; 0: not known
    text: Bytes  # UTF-8
    text_starts: Starts  # [N + 1]

    words: Strings  # lower-cased
    entities: Strings  # ids
    names: Strings  # of the entities, the first that was seen of each
    relations: Strings  # NA first, if it is one of them
    sources: Strings
    types: Strings  # of the mentions; the first is "", for a type that is not known

    @classmethod
    def writer(cls, folder: Path, relations: Sequence[str]) -> Writer:
        """What writes instances to a folder."""
        return SentenceWriter(folder, cls, relations)

    @classmethod
    def relations_in(cls, row: Instance) -> Iterable[str]:
        """The one relation of an instance."""
        return (row.relation,)

    def text_of(self, row: int) -> str:
        """The sentence as it was read."""
        return self.text[self.text_starts[row] : self.text_starts[row + 1]].tobytes().decode()

    def head_name(self, row: int) -> str:
        """The head entity's name."""
        return self.names[int(self.pairs[self.pair[row], 0])]

    def tail_name(self, row: int) -> str:
        """The tail entity's name."""
        return self.names[int(self.pairs[self.pair[row], 1])]

    def bags(self, rows: Ints) -> Bags:
        """Training bags: one for each (head, relation, tail) that the rows are labelled with."""
        return grouped_by(np.asarray(self.triple[rows], np.int64), rows, self.triples[:, 1])

    def bags_by_pair(self, rows: Ints) -> Bags:
        """Test bags: one for each entity pair; a sentence that is there under two relations counts once."""
        pairs = np.asarray(self.pair[rows], np.int64)
        sentences = np.asarray(self.sentence[rows])
        order = np.lexsort((sentences, pairs))
        again = (np.diff(pairs[order]) == 0) & (np.diff(sentences[order]) == 0)
        kept = np.sort(order[np.concatenate(([True], ~again))]) if len(rows) else order
        return grouped_by(pairs[kept], rows[kept])

    def label_counts(self, rows: Ints) -> Ints:
        """How many of the sentences have each relation, [relations]."""
        return np.bincount(self.relation[rows], minlength=len(self.relations))

    def label_of(self, rows: Ints) -> Ints:
        """The relation of each sentence."""
        return np.asarray(self.relation[rows], np.int64)

    def text_numbers(self) -> Ints:
        """A hash of each row's text."""
        return np.asarray(self.sentence, np.int64)

    def without_duplicates(self, rows: Ints) -> Ints:
        """The first of all rows that have the same triple in the same places of the same sentence, in order."""
        places = (*self.head_span[rows].T, *self.tail_span[rows].T)
        keys = (*places, self.sentence[rows], self.triple[rows])
        order = np.lexsort(keys)  # stable: of equal rows the first stays first
        again = np.all([np.diff(key[order]) == 0 for key in keys], axis=0)
        return np.asarray(rows)[np.sort(np.delete(order, np.flatnonzero(again) + 1))]

    def groups(self, rows: Ints) -> Ints:
        """One number for all sentences of the same document or, where that is not known, about the same two
        entities, whichever of them is the head."""
        entities = np.sort(self.pairs[self.pair[rows]].astype(np.int64), axis=1)
        documents = self.document[rows]
        numbers: Ints = np.where(documents == 0, entities[:, 0] << 32 | entities[:, 1], documents)
        return numbers

    @property
    def triple_count(self) -> int:
        """How many distinct (head, relation, tail) there are."""
        return len(self.triples)

    def truth_known(self, rows: Ints) -> bool:
        """Whether some of the rows say if their text states their relation."""
        return bool((self.expresses[rows] >= 0).any())


class SentenceWriter(Writer):
    """Numbers some thousand instances at a time; keeps the distinct words, entities, pairs and so on."""

    flush_every = 4096

    def __init__(self, folder: Path, kind: type[Corpus], relations: Sequence[str]) -> None:
        super().__init__(folder, kind, relations)
        self._words, self._entities, self._sources, self._types = (numbering() for _ in range(4))
        self._types[""] = 0
        self._names: list[str] = []
        # The keys are two numbers in one (first << 32 | second): hundreds of thousands of tuples would be heavy.
        self._pairs, self._triples = numbering(), numbering()
        self._numbers = WordNumbers(self._words.__getitem__)
        self._waiting: list[Instance] = []

    def add(self, split: int, row: Instance) -> None:
        """Take the next instance; what is wrong with it may be raised only when it is numbered."""
        if self._waiting and (row.tokens is None) != (self._waiting[0].tokens is None):
            self._number()
        self._waiting.append(row)
        self.columns["split"].append(split)
        self.rows += 1

    def flush(self) -> None:
        """Number the instances that wait, and move the buffers to disk."""
        self._number()
        super().flush()

    def tables(self) -> Mapping[str, Iterable[str]]:
        """The strings of each table."""
        return {
            "words": self._words,
            "entities": self._entities,
            "names": self._names,
            "relations": self.relations,
            "sources": self._sources,
            "types": self._types,
        }

    def finish(self) -> None:
        """Write the pairs and triples, too."""
        self._number()
        for name, keys in (("pairs", self._pairs), ("triples", self._triples)):
            self.columns[name].extend(chain.from_iterable(divmod(key, 1 << 32) for key in keys))
        super().finish()

    def _number(self) -> None:
        """Write the numbers of the instances that wait, all of which came tokenised or none."""
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        texts = [row.text for row in rows]
        spans = [row.tokens for row in rows if row.tokens is not None]
        mentions = [one for row in rows for one in (row.head, row.tail)]
        begin = np.array([one.start for one in mentions]).reshape(-1, 2)  # [rows, head and tail]
        end = np.array([one.end for one in mentions]).reshape(-1, 2)
        tokens = self._numbers.given(texts, spans, begin) if spans else self._numbers.of(texts, begin)
        sizes = np.array([len(text) for text in texts])
        wrong = (begin < 0) | (begin >= end) | (end > sizes[:, None]) | (tokens.at >= tokens.sizes[:, None])
        if wrong.any():
            raise self._no_token(rows, int(wrong.argmax()))

        self._put("tokens", tokens.words)
        self.end_many("starts", tokens.sizes)
        types = np.array([self._types[one.type] for one in mentions]).reshape(-1, 2)
        for side, name in enumerate(("head", "tail")):
            self._put(name, tokens.at[:, side])  # the token that holds the mention's first character
            self._put(f"{name}_span", np.stack((begin[:, side], end[:, side]), axis=1))
            self._put(f"{name}_type", types[:, side])
        self._put_texts(texts)

        relations = np.array([self.relations.get(row.relation, -1) for row in rows])
        if (relations < 0).any():
            at = int(relations.argmin())
            self.relation(rows[at].relation, f"instance {self.rows - len(rows) + at + 1}")
        pairs = _numbered(self._pairs, *self._entities_of(mentions).T)
        self._put("pair", pairs)
        self._put("relation", relations)
        self._put("triple", _numbered(self._triples, pairs, relations))
        self._put("source", np.array([self._sources[row.source] for row in rows]))
        documents = [row.document.encode() for row in rows]
        known = np.array([one != b"" for one in documents])
        self._put("document", _hashes(documents) * known if known.any() else np.zeros(len(rows)))
        self.columns["expresses"].extend(-1 if row.expresses is None else row.expresses for row in rows)

    def _put(self, name: str, values: NDArray[Any]) -> None:
        self.columns[name].frombytes(values.astype(self.columns[name].typecode).tobytes())

    def _put_texts(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        self.columns["text"].frombytes(b"".join(encoded))
        self.end_many("text_starts", np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._put("sentence", _hashes(encoded))

    def _entities_of(self, mentions: Sequence[Mention]) -> Ints:
        """The numbers of the heads and tails, [rows, 2]; a new one gets the name of its first mention."""
        numbers = [self._entities[one.id] for one in mentions]
        for number, one in zip(numbers, mentions, strict=True):
            if number == len(self._names):
                self._names.append(one.name)
        return np.array(numbers, np.int64).reshape(-1, 2)

    def _no_token(self, rows: Sequence[Instance], mention: int) -> UserError:
        at, side = divmod(mention, 2)
        row, number = rows[at], self.rows - len(rows) + at + 1
        wrong = row.tail if side else row.head
        place = f"[{wrong.start}, {wrong.end}) of a sentence of {len(row.text)} characters"
        return UserError(f"instance {number}: no token of {wrong.name!r} at {place}")


def _hashes(contents: Sequence[bytes]) -> Ints:
    return np.frombuffer(b"".join([blake2b(one, digest_size=8).digest() for one in contents]), "<i8")


def _numbered(numbers: dict[int, int], first: Ints, second: Ints) -> Ints:
    """The numbers of the two in one."""
    return np.array([numbers[key] for key in (first << 32 | second).tolist()], np.int64)
