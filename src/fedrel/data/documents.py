"""A document with its entities, mentions, pairs and facts: what readers yield and corpora are built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.bags import ragged
from fedrel.data.store import Column, Layout, Strings, map_columns
from fedrel.data.text import Span


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where an entity is named: the characters [start, end) of the document's text."""

    name: str  # as the annotators wrote it down; the text may space or spell it a little differently
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """What a knowledge base has under one id, with every mention of it in the document, from left to right."""

    id: str
    type: str
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation that the document states between two of its entities, given by their numbers in it.

    `evidence` holds the numbers of the sentences that tell it, where the corpus says so.
    """

    head: int
    tail: int
    relation: str
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A text, cut into sentences and tokens, and what is annotated in it.

    No token straddles the edge of a mention, and no mention the end of a sentence. `pairs` are the (head, tail)
    that a model is asked about, in ascending order; a pair has the relations of its facts, or none. `left_out`
    marks those that are neither trained on nor evaluated (`not_include` in EoG's files). `handled` counts what
    the reader met and dealt with, by the keys of `HANDLED`.
    """

    id: str
    text: str
    sentences: Sequence[Sequence[Span]]  # the tokens of each, as characters of the text
    entities: Sequence[Entity]
    pairs: NDArray[np.int32]  # [pairs, 2] into `entities`
    left_out: NDArray[np.bool_]  # [pairs]
    facts: Sequence[Fact]
    handled: Mapping[str, int] = field(default_factory=dict)


HANDLED = {
    "split_tokens": "tokens cut in two at the edge of a mention",
    "merged_sentences": "sentence ends ignored because they fell inside a mention",
    "unlinked_mentions": "mentions without a knowledge base id, which are no entity",
    "repeated_mentions": "mentions annotated twice, kept once",
    "type_conflicts": "mentions of another type than their entity's first, which stands",
    "names_differ": "mentions whose name is spelt or spaced otherwise than the text, which stands",
    "self_relations": "relations of an entity with itself, left out",
    "other_types": "relations between types that make no pair, left out",
    "repeated_facts": "facts stated twice, kept once",
    "left_out_pairs": "pairs neither trained on nor evaluated (hypernyms of a related entity)",
}
LOST = frozenset(
    {"unlinked_mentions", "self_relations", "other_types"}
)  # of these something was not taken over

FORMAT = 1  # of the folder; part of every cache key
TABLES = ("ids", "entities", "types", "names", "relations", "handled")

COLUMNS = {
    "split": Column("b"),
    "text": Column("B"),
    "text_starts": Column("q"),
    "sentence_starts": Column("q"),
    "token_starts": Column("q"),
    "tokens": Column("i", 2),
    "entity_starts": Column("q"),
    "entity_id": Column("i"),
    "entity_type": Column("i"),
    "mention_starts": Column("q"),
    "mention_chars": Column("i", 2),
    "mention_tokens": Column("i", 2),
    "mention_sentence": Column("i"),
    "mention_name": Column("i"),
    "pair_starts": Column("q"),
    "pairs": Column("i", 2),
    "left_out": Column("b"),
    "intra": Column("b"),
    "fact_starts": Column("q"),
    "fact_relation": Column("i"),
    "evidence_starts": Column("q"),
    "evidence": Column("i"),
    "handled_counts": Column("q"),
}
for _table in TABLES:
    COLUMNS |= {f"{_table}_text": Column("B"), f"{_table}_starts": Column("q")}

DOCUMENTS = Layout("documents", FORMAT, COLUMNS)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentView:
    """Document `row` of a corpus, all its numbers counted from its own beginning."""

    corpus: DocumentCorpus
    row: int

    @property
    def id(self) -> str:
        """What the corpus's makers call it."""
        return self.corpus.ids[self.row]

    @property
    def text(self) -> str:
        """All that characters are counted in."""
        return self.corpus.text[self._part(self.corpus.text_starts)].tobytes().decode()

    @property
    def sentences(self) -> Ints:
        """[sentences + 1], sentence s has the tokens sentences[s] to sentences[s + 1]."""
        return self._starts(self.corpus.token_starts, self.corpus.sentence_starts)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[tokens, 2], the characters of each."""
        starts = self.corpus.token_starts
        part = self._part(self.corpus.sentence_starts)
        return self.corpus.tokens[starts[part.start] : starts[part.stop]]

    @property
    def words(self) -> list[str]:
        """The tokens as strings."""
        text = self.text
        return [text[start:end] for start, end in self.tokens.tolist()]

    @property
    def entity_ids(self) -> list[str]:
        """The entities' ids in the knowledge base."""
        return [self.corpus.entities[number] for number in self.corpus.entity_id[self._entities].tolist()]

    @property
    def entity_types(self) -> list[str]:
        """What kind of thing each entity is."""
        return [self.corpus.types[number] for number in self.corpus.entity_type[self._entities].tolist()]

    @property
    def mentions(self) -> Ints:
        """[entities + 1], entity e has the mentions mentions[e] to mentions[e + 1]."""
        return self._starts(self.corpus.mention_starts, self.corpus.entity_starts)

    @property
    def mention_entity(self) -> Ints:
        """[mentions], whose mention each is."""
        sizes = np.diff(self.mentions)
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def mention_tokens(self) -> NDArray[np.int32]:
        """[mentions, 2], tokens [first, after); two entities may share a place (`A|B` in PubTator files)."""
        return self.corpus.mention_tokens[self._mentions]

    @property
    def mention_chars(self) -> NDArray[np.int32]:
        """[mentions, 2], characters [start, end)."""
        return self.corpus.mention_chars[self._mentions]

    @property
    def mention_names(self) -> list[str]:
        """What the annotators call each mention."""
        return [self.corpus.names[number] for number in self.corpus.mention_name[self._mentions].tolist()]

    @property
    def mention_sentence(self) -> NDArray[np.int32]:
        """[mentions], the sentence each stands in."""
        return self.corpus.mention_sentence[self._mentions]

    @property
    def pairs(self) -> NDArray[np.int32]:
        """[pairs, 2], head and tail, also of those that are left out."""
        return self.corpus.pairs[self._part(self.corpus.pair_starts)]

    @property
    def pair_numbers(self) -> Ints:
        """[pairs], the numbers that the corpus has them under."""
        part = self._part(self.corpus.pair_starts)
        return np.arange(part.start, part.stop)

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """[pairs], those neither trained on nor evaluated."""
        return self.corpus.left_out[self._part(self.corpus.pair_starts)].astype(np.bool_)

    @property
    def labels(self) -> NDArray[np.bool_]:
        """[pairs, relations], which relations each pair has; one without any has NA."""
        return self.corpus.labels(self.pair_numbers)

    @property
    def _entities(self) -> slice:
        return self._part(self.corpus.entity_starts)

    @property
    def _mentions(self) -> slice:
        starts = self.corpus.mention_starts
        return slice(int(starts[self._entities.start]), int(starts[self._entities.stop]))

    def _part(self, starts: Ints) -> slice:
        return slice(int(starts[self.row]), int(starts[self.row + 1]))

    def _starts(self, inner: Ints, outer: Ints) -> Ints:
        part = self._part(outer)
        starts: Ints = inner[part.start : part.stop + 1] - inner[part.start]
        return starts


@dataclass(frozen=True, slots=True, eq=False)
class DocumentCorpus:
    """`D` documents of `S` sentences and `T` tokens, `E` entities, `M` mentions, `P` pairs, `F` facts."""

    folder: Path
    fingerprint: str  # SHA-256 of everything below

    split: NDArray[np.int8]  # [D] TRAIN, DEV or TEST
    text: NDArray[np.uint8]  # UTF-8
    text_starts: Ints  # [D + 1]
    sentence_starts: Ints  # [D + 1] sentences of each document
    token_starts: Ints  # [S + 1] tokens of each sentence
    tokens: NDArray[np.int32]  # [T, 2] characters [start, end) in the document's text
    entity_starts: Ints  # [D + 1] entities of each document
    entity_id: NDArray[np.int32]  # [E] into `entities`
    entity_type: NDArray[np.int32]  # [E] into `types`
    mention_starts: Ints  # [E + 1] mentions of each entity, from left to right
    mention_chars: NDArray[np.int32]  # [M, 2] characters [start, end) in the document's text
    mention_tokens: NDArray[np.int32]  # [M, 2] tokens [first, after) of the document
    mention_sentence: NDArray[np.int32]  # [M] the sentence of the document that it stands in
    mention_name: NDArray[np.int32]  # [M] into `names`
    pair_starts: Ints  # [D + 1] pairs of each document
    pairs: NDArray[np.int32]  # [P, 2] head and tail: entities of the document; ascending within each
    left_out: NDArray[np.int8]  # [P] 1: neither for training nor for evaluation
    intra: NDArray[np.int8]  # [P] 1: some sentence mentions both
    fact_starts: Ints  # [P + 1] facts of each pair; one without is a negative
    fact_relation: NDArray[np.int32]  # [F] into `relations`, never NA
    evidence_starts: Ints  # [F + 1] evidence of each fact
    evidence: NDArray[np.int32]  # sentences of the document
    handled_counts: Ints  # what was met and dealt with, by the names in `handled`

    ids: Strings  # [D] of the documents
    entities: Strings  # ids in the knowledge base
    types: Strings
    names: Strings  # of mentions
    relations: Strings  # NA first
    handled: Strings

    def __len__(self) -> int:
        return len(self.split)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process is sent the folder, not the contents."""
        return open_documents, (self.folder,)

    def rows(self, split: int) -> Ints:
        """The documents of one split, in order."""
        return np.flatnonzero(self.split == split)

    def view(self, row: int) -> DocumentView:
        """One document by itself."""
        return DocumentView(self, row)

    def pairs_of(self, rows: Ints) -> Ints:
        """The numbers of these documents' pairs, without those that are left out, in the order of `rows`."""
        sizes = self.pair_starts[rows + 1] - self.pair_starts[rows]
        pairs = ragged(self.pair_starts[rows], sizes)
        kept: Ints = pairs[self.left_out[pairs] == 0]
        return kept

    def labels(self, pairs: Ints) -> NDArray[np.bool_]:
        """Which relations each pair has, [pairs, relations]; a pair without any has NA."""
        labels = np.zeros((len(pairs), len(self.relations)), np.bool_)
        sizes = self.fact_starts[pairs + 1] - self.fact_starts[pairs]
        facts = ragged(self.fact_starts[pairs], sizes)
        labels[np.repeat(np.arange(len(pairs)), sizes), self.fact_relation[facts]] = True
        labels[:, 0] = sizes == 0
        return labels

    def counts(self) -> dict[str, int]:
        """What readers met and dealt with, by name; `HANDLED` says what the names mean."""
        return dict(zip(self.handled, self.handled_counts.tolist(), strict=True))


def open_documents(folder: Path) -> DocumentCorpus:
    """Map a folder that `build_documents` wrote; one that is not such a corpus, or is damaged, is refused."""
    fingerprint, columns = map_columns(folder, DOCUMENTS)
    parts: dict[str, Any] = dict(columns)
    for name in TABLES:
        parts[name] = Strings(parts.pop(f"{name}_text"), parts.pop(f"{name}_starts"))
    return DocumentCorpus(folder, fingerprint, **parts)
