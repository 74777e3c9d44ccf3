"""Corpora of documents: their columns, a view of one document, and the writer that makes them from `Document`s."""

from __future__ import annotations

import hashlib
import logging
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrel.data.annotations import HANDLED, LOST, Document, Fact, Mention, places
from fedrel.data.bags import Bags, ragged, singles
from fedrel.data.relations import NA
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
from fedrel.errors import UserError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentCorpus(Corpus):
    """`D` documents of `S` sentences and `T` tokens, `E` entities, `M` mentions, `P` pairs, `F` facts."""

    prefix: ClassVar[str] = "documents"
    format: ClassVar[int] = 2
    first_format: ClassVar[int] = 1
    later: ClassVar[frozenset[str]] = frozenset({"source", "sources_text", "sources_starts"})
    unit: ClassVar[str] = "documents"

    folder: Path
    fingerprint: str

    split: Int8s  # [D] TRAIN, DEV or TEST
    source: Int32s  # [D] into `sources`
    text: Bytes  # UTF-8
    text_starts: Starts  # [D + 1]
    sentence_starts: Starts  # [D + 1] sentences of each document
    token_starts: Starts  # [S + 1] tokens of each sentence
    tokens: Int32Pairs  # [T, 2] characters [start, end) in the document's text
    entity_starts: Starts  # [D + 1] entities of each document
    entity_id: Int32s  # [E] into `entities`
    entity_type: Int32s  # [E] into `types`
    mention_starts: Starts  # [E + 1] mentions of each entity, from left to right
    mention_chars: Int32Pairs  # [M, 2] characters [start, end) in the document's text
    mention_tokens: Int32Pairs  # [M, 2] tokens [first, after) of the document
    mention_sentence: Int32s  # [M] the sentence of the document that it is in
    mention_name: Int32s  # [M] into `names`
    pair_starts: Starts  # [D + 1] pairs of each document
    pairs: Int32Pairs  # [P, 2] head and tail: entities of the document; ascending within each
    left_out: Int8s  # [P] 1: neither for training nor for evaluation
    intra: Int8s  # [P] 1: some sentence mentions both
    fact_starts: Starts  # [P + 1] facts of each pair; one without is a negative
    fact_relation: Int32s  # [F] into `relations`, never NA
    evidence_starts: Starts  # [F + 1] evidence of each fact
    evidence: Int32s  # sentences of the document
    handled_counts: Int64s  # how often each of `handled` happened

    ids: Strings  # [D] of the documents
    sources: Strings  # the sites that they are from; "" where that is not known
    entities: Strings  # ids in the knowledge base
    types: Strings
    names: Strings  # of mentions
    relations: Strings  # NA first
    handled: Strings

    @classmethod
    def writer(cls, folder: Path, relations: Sequence[str]) -> Writer:
        """What writes documents to a folder."""
        if relations[0] != NA:
            raise UserError(f"the first relation must be {NA!r}, found {relations[0]!r}")
        return DocumentWriter(folder, cls, relations)

    @classmethod
    def relations_in(cls, row: Document) -> Iterable[str]:
        """The relations of a document's facts."""
        return (fact.relation for fact in row.facts)

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
        """How often the reader had to correct or leave out something, by name; `HANDLED` explains the names."""
        return dict(zip(self.handled, self.handled_counts.tolist(), strict=True))

    def corrections(self) -> dict[str, int]:
        """What was corrected or left out within documents, in words."""
        return {HANDLED[name]: count for name, count in self.counts().items() if count}

    def text_numbers(self) -> Ints:
        """A hash of each document's text."""
        texts = (self.text[start:end].tobytes() for start, end in pairwise(self.text_starts.tolist()))
        digests = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
        return np.frombuffer(b"".join(digests), np.int64)

    def bags(self, rows: Ints) -> Bags:
        """Each document by itself."""
        return singles(rows, np.zeros_like(rows), rows)

    def label_counts(self, rows: Ints) -> Ints:
        """How many of the documents' pairs have each relation, [relations]; a pair with two counts twice."""
        counts: Ints = self.labels(self.pairs_of(rows)).sum(axis=0, dtype=np.int64)
        return counts

    def label_of(self, rows: Ints) -> None:
        """A document has no relation of its own, but those of its pairs."""

    def without_duplicates(self, rows: Ints) -> Ints:
        """All rows: documents are assumed to differ."""
        return rows

    def groups(self, rows: Ints) -> Ints:
        """Every document is a group of its own."""
        return np.arange(len(rows))

    @property
    def triple_count(self) -> int:
        """Triples of documents are not numbered."""
        return 0

    def truth_known(self, rows: Ints) -> bool:
        """Never known for documents."""
        return False


@dataclass(frozen=True, slots=True, eq=False)
class DocumentView:
    """Document `row` of a corpus, all its numbers counted from its own beginning."""

    corpus: DocumentCorpus
    row: int

    @property
    def id(self) -> str:
        """Its id in the files."""
        return self.corpus.ids[self.row]

    @property
    def text(self) -> str:
        """The text that character offsets refer to."""
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
        """[mentions], the entity of each."""
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
        """[mentions], the sentence each is in."""
        return self.corpus.mention_sentence[self._mentions]

    @property
    def pairs(self) -> NDArray[np.int32]:
        """[pairs, 2], head and tail, also of those that are left out."""
        return self.corpus.pairs[self._part(self.corpus.pair_starts)]

    @property
    def pair_numbers(self) -> Ints:
        """[pairs], their numbers in the corpus."""
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


class DocumentWriter(Writer):
    """Takes documents one at a time; keeps only the distinct ids, names, types and relations."""

    flush_every = 256

    def __init__(self, folder: Path, kind: type[Corpus], relations: Sequence[str]) -> None:
        super().__init__(folder, kind, relations)
        self._handled: Counter[str] = Counter(dict.fromkeys(HANDLED, 0))
        self._ids: list[str] = []
        self._entities, self._types, self._names, self._sources = (numbering() for _ in range(4))

    def add(self, split: int, row: Document) -> None:
        """Take the next document."""
        columns = self.columns
        columns["split"].append(split)
        columns["source"].append(self._sources[row.source])
        self._ids.append(row.id)
        encoded = row.text.encode()
        columns["text"].frombytes(encoded)
        self.end("text_starts", len(encoded))
        for sentence in row.sentences:
            columns["tokens"].extend(chain.from_iterable(sentence))
            self.end("token_starts", len(sentence))
        self.end("sentence_starts", len(row.sentences))
        mentioned_in = self._add_entities(row)
        self._add_pairs(row, mentioned_in)
        self._handled.update(row.handled)
        self._handled["left_out_pairs"] += int(row.left_out.sum())
        self.rows += 1

    def tables(self) -> Mapping[str, Iterable[str]]:
        """The strings of each table."""
        return {
            "ids": self._ids,
            "sources": self._sources,
            "entities": self._entities,
            "types": self._types,
            "names": self._names,
            "relations": self.relations,
            "handled": HANDLED,
        }

    def finish(self) -> None:
        """Write how often readers had to correct or leave out something, too, and log it."""
        self.columns["handled_counts"].extend(self._handled[name] for name in HANDLED)
        super().finish()
        for name, count in self._handled.items():
            if count:
                _log.log(logging.WARNING if name in LOST else logging.INFO, "%d %s", count, HANDLED[name])

    def _add_entities(self, document: Document) -> list[set[int]]:
        """Write the entities and mentions; returns the sentences in which each entity is mentioned."""
        columns = self.columns
        tokens = [token for sentence in document.sentences for token in sentence]
        starts, ends = [start for start, _ in tokens], [end for _, end in tokens]
        last_tokens = list(accumulate(map(len, document.sentences)))  # of each sentence, plus one
        mentioned_in: list[set[int]] = []
        for entity in document.entities:
            columns["entity_id"].append(self._entities[entity.id])
            columns["entity_type"].append(self._types[entity.type])
            mentioned_in.append(set())
            for mention in entity.mentions:
                first = bisect_right(ends, mention.start)
                after = bisect_left(starts, mention.end)
                sentence = bisect_right(last_tokens, first)
                whole = first < after and starts[first] >= mention.start and ends[after - 1] <= mention.end
                if not whole or after > last_tokens[sentence]:
                    raise _misplaced(document, mention)
                columns["mention_chars"].extend((mention.start, mention.end))
                columns["mention_tokens"].extend((first, after))
                columns["mention_sentence"].append(sentence)
                columns["mention_name"].append(self._names[mention.name])
                mentioned_in[-1].add(sentence)
            self.end("mention_starts", len(entity.mentions))
        self.end("entity_starts", len(document.entities))
        return mentioned_in

    def _add_pairs(self, document: Document, mentioned_in: Sequence[set[int]]) -> None:
        columns, pairs = self.columns, np.ascontiguousarray(document.pairs, np.int32).reshape(-1, 2)
        columns["pairs"].frombytes(pairs.tobytes())
        columns["left_out"].frombytes(document.left_out.astype(np.int8).tobytes())
        columns["intra"].frombytes(_intra(pairs, mentioned_in, len(document.sentences)).tobytes())
        self.end("pair_starts", len(pairs))
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
                number = self.relation(fact.relation, f"document {document.id}")
                columns["fact_relation"].append(number)
                columns["evidence"].extend(fact.evidence)
                self.end("evidence_starts", len(fact.evidence))
        self.end_many("fact_starts", counts)


def _intra(pairs: NDArray[np.int32], mentioned_in: Sequence[set[int]], sentences: int) -> NDArray[np.int8]:
    """1 for each pair whose two entities are mentioned together in some sentence."""
    at = np.zeros((len(mentioned_in), sentences), np.float32)
    for entity, numbers in enumerate(mentioned_in):
        at[entity, list(numbers)] = 1
    together = at @ at.T > 0
    return together[pairs[:, 0], pairs[:, 1]].astype(np.int8)


def _misplaced(document: Document, mention: Mention) -> UserError:
    place = f"[{mention.start}, {mention.end}) of {len(document.text)} characters"
    return UserError(
        f"document {document.id}: {mention.name!r} at {place} is not whole tokens of one sentence"
    )
