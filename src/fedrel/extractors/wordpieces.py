"""A sentence as a transformer reads it: its word pieces, with entities blinded, marked and never cut away.

A sentence is tokenised in segments that end where an entity begins or ends, so that no piece stands half in an
entity, and markers are put between pieces by their ids. Text that happens to read `<e1>` or `[SEP]` stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from fedrel.config import TransformerSection
from fedrel.errors import UserError
from fedrel.extractors.encoders import (
    add_markers,
    load_tokeniser,
    longest_input,
    marker_ids,
    tokeniser_fingerprint,
)

Span = tuple[int, int]

_UNTYPED = "@$"
_BLINDED = re.compile(r"@[^@$\s]+\$")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text with two entities, each characters [start, end), and their types, if known."""

    number: int  # for messages, from 1
    text: str
    head: Span
    tail: Span
    head_type: str = ""
    tail_type: str = ""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A sentence's pieces, special ones included, and the pieces [start, end) of its entities."""

    ids: list[int]
    head: Span
    tail: Span


class Tokeniser:
    """An encoder's tokeniser under the choices of a config."""

    def __init__(self, section: TransformerSection) -> None:
        tokeniser = load_tokeniser(section.encoder)
        if section.marks:
            add_markers(tokeniser)
        self.fingerprint = tokeniser_fingerprint(tokeniser)
        if section.max_length > (limit := longest_input(section.encoder, tokeniser)):
            problem = (
                f"extractor.max_length is {section.max_length}, but {section.encoder!r} reads {limit} pieces"
            )
            raise UserError(problem, remedy=f"set it to {limit} or less")
        self._backend = tokeniser.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._prefix, self._suffix = self._template()
        self._backend.encode_special_tokens = True  # as ordinary text
        self._blinds = section.blinds
        self._markers = marker_ids(tokeniser) if section.marks else []
        self._room = section.max_length - len(self._prefix) - len(self._suffix)
        if self._room < len(self._markers) + 2:
            problem = f"extractor.max_length is {section.max_length}: no room for two entities"
            raise UserError(problem, remedy="set it to 16 or more")
        if section.pooling == "cls_sum" and not self._prefix:
            raise UserError(
                f"the tokeniser of {section.encoder!r} puts no [CLS] before a text",
                remedy='set extractor.pooling to "sum" or "max", or name an encoder as BERT\'s',
            )

    def __call__(self, sentences: Sequence[Sentence]) -> Iterator[Pieces]:
        """The pieces of each sentence; refuses one of whose entities nothing is left, or cannot be blinded."""
        segmented = [_segments(sentence, self._blinds) for sentence in sentences]
        encodings = self._backend.encode_batch(
            [texts for texts, _, _ in segmented], is_pretokenized=True, add_special_tokens=False
        )
        for sentence, (texts, *entities), encoding in zip(sentences, segmented, encodings, strict=True):
            counts = [0] * len(texts)
            for segment in encoding.word_ids:
                counts[segment or 0] += 1
            cuts = list(accumulate(counts, initial=0))
            spans = [(cuts[first], cuts[last]) for first, last in entities]
            for role, (start, end) in enumerate(spans):
                if start == end:
                    problem = "is missing from the sentence: the tokeniser leaves nothing of it"
                    raise _refuse(sentence, role, problem, "check the entity's characters")
            yield self._assemble(encoding.ids, spans)

    def _assemble(self, ids: list[int], spans: list[Span]) -> Pieces:
        ids, spans, places = _mark(ids, spans, self._markers)
        if len(ids) > self._room:
            kept = window(len(ids), spans, places, self._room)
            before = np.searchsorted(kept, spans).tolist()
            ids, spans = [ids[place] for place in kept.tolist()], [(start, end) for start, end in before]
        shift = len(self._prefix)
        head, tail = ((start + shift, end + shift) for start, end in spans)
        return Pieces([*self._prefix, *ids, *self._suffix], head, tail)

    def _template(self) -> tuple[list[int], list[int]]:
        """The special pieces that stand before and after every text."""
        probe = self._backend.encode("a")
        text = [place for place, special in enumerate(probe.special_tokens_mask) if not special]
        return probe.ids[: text[0]], probe.ids[text[-1] + 1 :]


def blind(text: str, type_: str) -> str:
    """The label that stands for an entity; what is a label already stays.

    >>> blind("BRCA1", "gene"), blind("@GENE$", "")
    ('@GENE$', '@GENE$')
    """
    return text if _BLINDED.fullmatch(text) else f"@{type_.upper()}$"


def window(length: int, spans: Sequence[Span], markers: Sequence[int], room: int) -> npt.NDArray[np.int64]:
    """Which `room` of so many pieces to keep, ascending, when two entities and markers stand in given places.

    First come the markers, then the entities' pieces, each entity's first ones first; then what stands between
    the entities, from both ends towards the middle; then what stands before and after, from near to far.
    """
    place = np.arange(length)
    away = np.minimum.reduce([np.maximum(start - place, place - end + 1) for start, end in spans])
    outside = (place < min(spans)[0]) | (place >= max(end for _, end in spans))
    rank = np.where(outside, 2 * length, length) + away
    for start, end in spans:
        rank[start:end] = np.minimum(rank[start:end], place[: end - start])
    rank[list(markers)] = -1
    return np.sort(np.argsort(rank, kind="stable")[:room])


def _segments(sentence: Sentence, blinds: bool) -> tuple[list[str], Span, Span]:
    """The text in segments, and the segments [first, last) of head and tail."""
    if blinds:
        texts, head, tail = _blinded(sentence)
    else:
        edges = sorted({0, *sentence.head, *sentence.tail, len(sentence.text)})
        texts = [sentence.text[start:end] for start, end in pairwise(edges)]
        head, tail = ((edges.index(start), edges.index(end)) for start, end in (sentence.head, sentence.tail))
    # A space belongs to the word after it: so it is for the tokenisers that do not drop it.
    for place in range(len(texts) - 1):
        kept = texts[place].rstrip()
        texts[place + 1] = texts[place][len(kept) :] + texts[place + 1]
        texts[place] = kept
    return texts, head, tail


def _blinded(sentence: Sentence) -> tuple[list[str], Span, Span]:
    """Labels in place of the entities; where these overlap, both labels in place of their union."""
    text = sentence.text
    spans, labels = [sentence.head, sentence.tail], []
    for role, type_ in enumerate((sentence.head_type, sentence.tail_type)):
        labels.append(blind(text[slice(*spans[role])], type_))
        if labels[role] == _UNTYPED:
            problem = "has no type to stand in its place"
            remedy = "give types (`type` in h and t; columns 6 and 7 of a KB), or train with blinding=false"
            raise _refuse(sentence, role, problem, remedy)
    first, second = sorted((0, 1), key=lambda role: spans[role])
    (start, end), (other_start, other_end) = spans[first], spans[second]
    between = text[end:other_start] if end <= other_start else " "
    texts = [text[:start], labels[first], between, labels[second], text[max(end, other_end) :]]
    where = {first: (1, 2), second: (3, 4)}
    return texts, where[0], where[1]


def _mark(ids: list[int], spans: list[Span], markers: list[int]) -> tuple[list[int], list[Span], list[int]]:
    """The pieces with markers around the entities, the entities' spans then, and the markers' places."""
    if not markers:
        return ids, spans, []
    edges = []
    for role, (start, end) in enumerate(spans):
        # Where several stand between the same two pieces, they nest as brackets do, ends before beginnings.
        edges.append((start, 1, start - end, role, 2 * role))
        edges.append((end, 0, end - start, -role, 2 * role + 1))
    edges.sort()
    marked: list[int] = []
    places, done = [0] * len(edges), 0
    for edge, _, _, _, marker in edges:
        marked += ids[done:edge]
        places[marker], done = len(marked), edge
        marked.append(markers[marker])
    marked += ids[done:]
    return marked, [(places[0] + 1, places[1]), (places[2] + 1, places[3])], places


def _refuse(sentence: Sentence, role: int, problem: str, remedy: str) -> UserError:
    name, (start, end) = (("head", sentence.head), ("tail", sentence.tail))[role]
    where = f"sentence {sentence.number}, {sentence.text!r}"
    return UserError(f"{where}: its {name} {sentence.text[start:end]!r} {problem}", remedy=remedy)
