"""A sentence as a transformer reads it: its word pieces, with entities blinded, marked and never cut away.

A sentence is tokenised in segments that end where an entity begins or ends, so that no piece is half in an entity.
Markers are inserted between pieces by their ids. Text that happens to read `<e1>` or `[SEP]` stays text.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, ragged
from fedrel.data.column_files import check_sums, write_sums
from fedrel.errors import UserError
from fedrel.extractors.batches import Inputs, Ints, PieceBatch, tensor
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer.encoder_loading import (
    add_markers,
    load_tokeniser,
    longest_input,
    marker_ids,
    tokeniser_fingerprint,
)
from fedrel.files import atomic_folder, cache_folder, write_text

if TYPE_CHECKING:
    from fedrel.data.sentences import SentenceCorpus


Span = tuple[int, int]

_AGAIN = "remove the folder; it will be made again"
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
    """An encoder's tokeniser with the choices of a section."""

    def __init__(self, section: TransformerSection) -> None:
        tokeniser = load_tokeniser(section.encoder)
        if section.marks:
            add_markers(tokeniser)
        self.fingerprint = tokeniser_fingerprint(tokeniser)
        if section.max_length > (limit := longest_input(section.encoder, tokeniser)):
            problem = (
                f"extractor.max_length is {section.max_length}, but {section.encoder!r} reads {limit} pieces"
            )
            raise UserError(problem, hint=f"set it to {limit} or less")
        self._backend = tokeniser.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._prefix, self._suffix = self._template()
        self._backend.encode_special_tokens = True  # as ordinary text
        self._blinds = section.blinds
        self._markers = marker_ids(tokeniser) if section.marks else []
        self._room = section.max_length - len(self._prefix) - len(self._suffix)
        if self._room < len(self._markers) + 2:
            problem = f"extractor.max_length is {section.max_length}, too few for two entities"
            raise UserError(problem, hint="set it to 16 or more")
        if section.pooling == "cls_sum" and not self._prefix:
            raise UserError(
                f"the tokeniser of {section.encoder!r} puts no [CLS] before a text",
                hint='set extractor.pooling to "sum" or "max", or name an encoder as BERT\'s',
            )

    def __call__(self, sentences: Sequence[Sentence]) -> Iterator[Pieces]:
        """The pieces of each sentence; a `UserError` if nothing is left of an entity, or it cannot be blinded."""
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
        """The special pieces before and after every text."""
        probe = self._backend.encode("a")
        text = [place for place, special in enumerate(probe.special_tokens_mask) if not special]
        return probe.ids[: text[0]], probe.ids[text[-1] + 1 :]


def blind(text: str, type_: str) -> str:
    """The label that replaces an entity; a text that is a label already stays.

    >>> blind("BRCA1", "gene"), blind("@GENE$", "")
    ('@GENE$', '@GENE$')
    """
    return text if _BLINDED.fullmatch(text) else f"@{type_.upper()}$"


def window(length: int, spans: Sequence[Span], markers: Sequence[int], room: int) -> npt.NDArray[np.int64]:
    """Which `room` of so many pieces to keep, ascending, given the places of two entities and of markers.

    Markers come first, then the entities' pieces, each entity's first ones first; then the pieces between the
    entities, from both ends towards the middle; then those before and after, from near to far.
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
    # A space goes with the word after it, as in tokenisers that do not drop spaces.
    for place in range(len(texts) - 1):
        kept = texts[place].rstrip()
        texts[place + 1] = texts[place][len(kept) :] + texts[place + 1]
        texts[place] = kept
    return texts, head, tail


def _blinded(sentence: Sentence) -> tuple[list[str], Span, Span]:
    """The text with labels instead of the entities; where these overlap, both labels replace their union."""
    text = sentence.text
    spans, labels = [sentence.head, sentence.tail], []
    for role, type_ in enumerate((sentence.head_type, sentence.tail_type)):
        labels.append(blind(text[slice(*spans[role])], type_))
        if labels[role] == _UNTYPED:
            problem = "has no type to replace it with"
            hint = "give types (`type` in h and t; columns 6 and 7 of a KB), or train with blinding=false"
            raise _refuse(sentence, role, problem, hint)
    first, second = sorted((0, 1), key=lambda role: spans[role])
    (start, end), (other_start, other_end) = spans[first], spans[second]
    between = text[end:other_start] if end <= other_start else " "
    texts = [text[:start], labels[first], between, labels[second], text[max(end, other_end) :]]
    where = {first: (1, 2), second: (3, 4)}
    return texts, where[0], where[1]


def _mark(ids: list[int], spans: list[Span], markers: list[int]) -> tuple[list[int], list[Span], list[int]]:
    """The pieces with markers around the entities, the entities' new spans, and the markers' places."""
    if not markers:
        return ids, spans, []
    edges = []
    for role, (start, end) in enumerate(spans):
        # Several between the same two pieces nest like brackets, ends before beginnings.
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


def _refuse(sentence: Sentence, role: int, problem: str, hint: str) -> UserError:
    name, (start, end) = (("head", sentence.head), ("tail", sentence.tail))[role]
    where = f"sentence {sentence.number}, {sentence.text!r}"
    return UserError(f"{where}: its {name} {sentence.text[start:end]!r} {problem}", hint=hint)


FORMAT = 1  # of the folder; part of its name in the cache
AT_ONCE = 4096  # sentences: enough for the tokeniser's threads, few enough for memory

_COLUMNS = {"pieces": np.int32, "starts": np.int64, "head": np.int32, "tail": np.int32}
_POINTER = "pieces.json"


@dataclass(frozen=True, eq=False)
class PieceInputs(Inputs):
    """The pieces of a corpus's `N` rows, laid end to end; read only."""

    folder: Path
    pieces: npt.NDArray[np.int32]  # [P], ids in the encoder's vocabulary
    starts: npt.NDArray[np.int64]  # [N + 1], row n is pieces[starts[n]:starts[n + 1]]
    head: npt.NDArray[np.int32]  # [N, 2], the head's pieces [start, end), counted within the row
    tail: npt.NDArray[np.int32]  # [N, 2], likewise the tail's

    def lengths(self, rows: Ints) -> Ints:
        """How many pieces each row has."""
        lengths: Ints = self.starts[rows + 1] - self.starts[rows]
        return lengths

    def batch(self, bags: Bags, device: str = "cpu") -> PieceBatch:
        """The sentences of these bags."""
        rows = bags.rows
        sizes = self.lengths(rows)
        head, tail = self.head[rows], self.tail[rows]
        return PieceBatch(
            words=tensor(self.pieces[ragged(self.starts[rows], sizes)], device),
            starts=tensor(np.concatenate(([0], np.cumsum(sizes))), device),
            head=tensor(head[:, 0], device),
            tail=tensor(tail[:, 0], device),
            bags=tensor(bags.bounds, device),
            labels=tensor(bags.labels, device),
            rows=rows,
            head_end=tensor(head[:, 1], device),
            tail_end=tensor(tail[:, 1], device),
        )

    def save(self, folder: Path) -> dict[str, Any]:
        """Only the path of the columns, which every process of this machine can map."""
        write_text(folder / _POINTER, json.dumps({"folder": str(self.folder)}))
        return {}

    @staticmethod
    def open(folder: Path) -> PieceInputs:
        """The pieces that `tokenise` wrote to this folder, or whose path `save` wrote there."""
        try:
            if (folder / _POINTER).exists():
                folder = Path(json.loads((folder / _POINTER).read_text(encoding="utf-8"))["folder"])
            check_sums(folder, _AGAIN)
            columns = {name: _map(folder, name) for name in _COLUMNS}
            head, tail = columns["head"].reshape(-1, 2), columns["tail"].reshape(-1, 2)
            if not len(head) == len(tail) == len(columns["starts"]) - 1:
                raise ValueError("its columns do not fit each other")
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"not a tokenised corpus: {error}", file=folder, hint=_AGAIN) from error
        return PieceInputs(folder.absolute(), columns["pieces"], columns["starts"], head, tail)


def tokenise(
    corpus: SentenceCorpus,
    section: TransformerSection,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> PieceInputs:
    """The pieces of every row of a corpus, from the cache if they are there; `folder` keeps them elsewhere.

    `progress` is called now and then with the number of rows done.
    """
    tokeniser = Tokeniser(section)
    if folder is None:
        choices = [section.blinds, section.marks, section.max_length]
        key = json.dumps([FORMAT, corpus.fingerprint, tokeniser.fingerprint, *choices])
        folder = cache_folder() / f"pieces-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        try:
            return PieceInputs.open(folder)
        except UserError:
            shutil.rmtree(folder, ignore_errors=True)
    with atomic_folder(folder) as part:
        _write(part, corpus, tokeniser, progress)
        write_sums(part)
    return PieceInputs.open(folder)


def _write(
    folder: Path, corpus: SentenceCorpus, tokeniser: Tokeniser, progress: Callable[[int], None] | None
) -> None:
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in _COLUMNS}

        def append(name: str, values: Any) -> None:
            np.asarray(values, _COLUMNS[name]).tofile(files[name])

        total = np.zeros(1, np.int64)
        append("starts", total)
        for begin in range(0, len(corpus), AT_ONCE):
            done = list(tokeniser(_sentences(corpus, begin, min(begin + AT_ONCE, len(corpus)))))
            total = total[-1] + np.cumsum([len(one.ids) for one in done])
            append("starts", total)
            append("pieces", list(chain.from_iterable(one.ids for one in done)))
            append("head", [one.head for one in done])
            append("tail", [one.tail for one in done])
            if progress:
                progress(begin + len(done))


def _sentences(corpus: SentenceCorpus, begin: int, end: int) -> list[Sentence]:
    types = list(corpus.types)
    columns = (corpus.head_span, corpus.tail_span, corpus.head_type, corpus.tail_type)
    return [
        Sentence(row + 1, corpus.text_of(row), tuple(head), tuple(tail), types[head_type], types[tail_type])
        for row, head, tail, head_type, tail_type in zip(
            range(begin, end), *(column[begin:end].tolist() for column in columns), strict=True
        )
    ]


def _map(folder: Path, name: str) -> npt.NDArray[Any]:
    path = folder / f"{name}.bin"
    # An empty file cannot be mapped. A plain array is a faster view of the same memory than a memmap.
    empty = path.stat().st_size == 0
    return np.empty(0, _COLUMNS[name]) if empty else np.asarray(np.memmap(path, _COLUMNS[name], mode="r"))
