"""Documents as word pieces with `*` around every mention, made once and mapped from the cache; read in windows.

A document longer than an encoder can read at once is read in windows that overlap. They are spread evenly, and
each shares at least a quarter of its pieces with the next. If two are enough, they are ATLOP's: one from the
beginning, one up to the end. Each has the encoder's special pieces around it, its frame, as a whole text has;
only those at the document's own ends belong to the document.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedrel.data.bags import Bags, ragged
from fedrel.data.column_files import check_sums, write_sums
from fedrel.data.documents import DocumentCorpus
from fedrel.errors import UserError
from fedrel.extractors.batches import Batch, Inputs, Ints, tensor
from fedrel.files import atomic_folder, cache_folder, write_text

FORMAT = 1  # of the folder; part of its name in the cache
MARKER = "*"
AT_ONCE = 256  # documents: enough for the tokeniser's threads, few enough for memory
_COLUMNS = {"pieces": np.int32, "starts": np.int64, "words": np.int32, "places": np.int32}
_ABOUT = "about.json"
_AGAIN = "remove the folder; it will be made again"
_POINTER = "documents.json"
SHARED = 4  # at least one part in so many of a window is also in the next one


@dataclass(frozen=True, eq=False)
class DocumentInputs(Inputs):
    """The pieces of a corpus's `D` documents, laid end to end; read only."""

    corpus: DocumentCorpus
    folder: Path
    frame: Frame
    limit: int  # pieces that the encoder reads at once
    pieces: npt.NDArray[np.int32]  # [N], ids in the encoder's vocabulary; frame and markers are among them
    starts: Ints  # [D + 1], document d is pieces[starts[d]:starts[d + 1]]
    words: npt.NDArray[
        np.int32
    ]  # [N], the token of its document that a piece is of; -1 for frame and markers
    places: npt.NDArray[np.int32]  # [mentions], where in its document each one's opening marker is

    at_once = 16

    def lengths(self, rows: Ints) -> Ints:
        """How many pieces each document has."""
        lengths: Ints = self.starts[rows + 1] - self.starts[rows]
        return lengths

    def batch(self, bags: Bags, device: str = "cpu") -> DocumentBatch:
        """These documents, with the pairs that are not left out."""
        corpus, rows = self.corpus, bags.rows
        lengths = self.lengths(rows).tolist()
        parts = [windows(length, self.frame, self.limit) for length in lengths]
        texts = [
            self._window(int(row), first, end)
            for row, part in zip(rows, parts, strict=True)
            for first, end, _ in part
        ]
        entity_counts = np.diff(corpus.entity_starts)[rows]
        entities = ragged(corpus.entity_starts[rows], entity_counts)
        first_entity = np.concatenate(([0], np.cumsum(entity_counts)))  # of each document, in the batch
        mention_counts = np.diff(corpus.mention_starts)[entities]
        mentions = ragged(corpus.mention_starts[entities], mention_counts)
        first_mention = np.concatenate(([0], np.cumsum(mention_counts)))[first_entity]
        pairs = corpus.pairs_of(rows)
        document = np.searchsorted(corpus.pair_starts, pairs, side="right") - 1
        pair_counts = np.array([np.count_nonzero(document == row) for row in rows], np.int64)
        ends = corpus.pairs[pairs] + np.repeat(first_entity[:-1], pair_counts)[:, None]
        return DocumentBatch(
            words=tensor(np.concatenate(texts), device),
            starts=tensor(np.cumsum([0, *map(len, texts)]), device),
            head=tensor(ends[:, 0], device),
            tail=tensor(ends[:, 1], device),
            bags=tensor(np.concatenate(([0], np.cumsum(pair_counts))), device),
            labels=torch.from_numpy(corpus.labels(pairs)[:, 1:].astype(np.float32)).to(device),
            rows=rows,
            windows=tuple(map(tuple, parts)),
            lengths=tuple(lengths),
            entities=tuple(first_entity.tolist()),
            mentions=tuple(first_mention.tolist()),
            entity=tensor(np.repeat(np.arange(len(entities)), mention_counts), device),
            place=tensor(self.places[mentions], device),
            pairs=pairs,
        )

    def save(self, folder: Path) -> dict[str, Any]:
        """Only the path of the columns, which every process of this machine can map."""
        write_text(folder / _POINTER, json.dumps({"folder": str(self.folder), "limit": self.limit}))
        return {}

    @staticmethod
    def open(folder: Path, corpus: DocumentCorpus, limit: int | None = None) -> DocumentInputs:
        """The pieces that `tokenise` wrote to this folder, or whose path `save` wrote there."""
        try:
            if limit is None:
                pointer = json.loads((folder / _POINTER).read_text(encoding="utf-8"))
                folder, limit = Path(pointer["folder"]), int(pointer["limit"])
            check_sums(folder, _AGAIN)
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _COLUMNS}
            if len(columns["starts"]) != len(corpus) + 1 or columns["starts"][-1] != len(columns["pieces"]):
                raise ValueError("its columns do not fit the corpus")
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"not a tokenised corpus: {error}", file=folder, hint=_AGAIN) from error
        frame = Frame(tuple(about["prefix"]), tuple(about["suffix"]))
        return DocumentInputs(corpus, folder.absolute(), frame, limit, **columns)

    def _window(self, row: int, first: int, end: int) -> npt.NDArray[np.int32]:
        """Some pieces of a document with a frame, unless the document's own is among them."""
        start, after = int(self.starts[row]), int(self.starts[row + 1])
        before = self.frame.prefix if first else ()
        behind = self.frame.suffix if start + end < after else ()
        own = self.pieces[start + first : start + end]
        return np.concatenate([np.array(before, np.int32), own, np.array(behind, np.int32)])


def tokenise(
    corpus: DocumentCorpus,
    encoder: str,
    window: int | None = None,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> DocumentInputs:
    """The pieces of every document, from the cache if they are there; `folder` keeps them elsewhere.

    `window` is how many pieces are read at once, by default as many as the encoder can. `progress` is called now
    and then with the number of documents done.
    """
    tokeniser = DocumentTokeniser(encoder)
    limit = tokeniser.window(window)
    if folder is None:
        key = json.dumps([FORMAT, corpus.fingerprint, tokeniser.fingerprint])
        folder = cache_folder() / f"document-pieces-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        try:
            return DocumentInputs.open(folder, corpus, limit)
        except UserError:
            shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, list[Any]] = {"pieces": [], "starts": [0], "words": [], "places": []}
    for begin in range(0, len(corpus), AT_ONCE):
        rows = range(begin, min(begin + AT_ONCE, len(corpus)))
        for marked in tokeniser(corpus, rows):
            found["pieces"] += marked.pieces
            found["starts"].append(len(found["pieces"]))
            found["words"] += marked.words
            found["places"] += marked.places
        if progress:
            progress(rows.stop)
    with atomic_folder(folder) as part:
        for name, kind in _COLUMNS.items():
            np.save(part / f"{name}.npy", np.array(found[name], kind))
        (part / _ABOUT).write_text(json.dumps(tokeniser.frame._asdict()), encoding="utf-8")
        write_sums(part)
    return DocumentInputs.open(folder, corpus, limit)


class Marked(NamedTuple):
    """A document's pieces with frame and markers, the token of each piece, and its mentions' opening markers."""

    pieces: list[int]
    words: list[int]
    places: list[int]


class DocumentTokeniser:
    """An encoder's tokeniser, for texts that are cut into tokens already."""

    def __init__(self, encoder: str) -> None:
        from fedrel.extractors.transformer.encoder_loading import (
            load_tokeniser,
            longest_input,
            tokeniser_fingerprint,
        )

        tokeniser = load_tokeniser(encoder)
        self.fingerprint = tokeniser_fingerprint(tokeniser)
        self._encoder, self._longest = encoder, longest_input(encoder, tokeniser)
        self._backend = tokeniser.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        probe = self._backend.encode("a")
        text = [place for place, special in enumerate(probe.special_tokens_mask) if not special]
        self.frame = Frame(tuple(probe.ids[: text[0]]), tuple(probe.ids[text[-1] + 1 :]))
        self._backend.encode_special_tokens = True  # as ordinary text
        marker = self._backend.encode(MARKER, add_special_tokens=False).ids
        if not marker or marker[-1] == tokeniser.unk_token_id:
            raise UserError(
                f"the tokeniser of {encoder!r} has no piece for {MARKER!r}, which marks mentions",
                hint="name another encoder",
            )
        self._marker = int(marker[-1])

    def window(self, wanted: int | None) -> int:
        """How many pieces to read at once: as many as the encoder can, or the fewer that are wanted."""
        if wanted is not None and wanted > self._longest:
            problem = f"extractor.window is {wanted}, but {self._encoder!r} reads {self._longest} pieces"
            raise UserError(problem, hint=f"set it to {self._longest} or less")
        return wanted or self._longest

    def __call__(self, corpus: DocumentCorpus, rows: Iterable[int]) -> Iterator[Marked]:
        """The pieces of each document."""
        views = [corpus.view(row) for row in rows]
        texts = [_spaced(view.text, view.tokens.tolist()) for view in views]
        encodings = self._backend.encode_batch(texts, is_pretokenized=True, add_special_tokens=False)
        for view, text, encoding in zip(views, texts, encodings, strict=True):
            counts = np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(text)).tolist()
            spans = [(first, after) for first, after in view.mention_tokens.tolist()]
            yield self._mark(encoding.ids, counts, spans)

    def _mark(self, ids: list[int], counts: list[int], spans: Sequence[tuple[int, int]]) -> Marked:
        """The pieces with a marker before and after each span; mentions may share a span and its markers."""
        cuts = list(accumulate(counts, initial=0))  # the first piece of each token
        edges = []
        for first, after in set(spans):
            # Several between the same two tokens nest like brackets, ends before beginnings.
            edges += [(first, 1, first - after, (first, after)), (after, 0, after - first, None)]
        edges.sort(key=lambda edge: edge[:3])
        pieces, words = list(self.frame.prefix), [-1] * len(self.frame.prefix)
        token_of = [token for token, count in enumerate(counts) for _ in range(count)]
        opened: dict[tuple[int, int], int] = {}
        done = 0
        for token, _, _, span in edges:
            pieces += ids[done : cuts[token]]
            words += token_of[done : cuts[token]]
            done = cuts[token]
            if span is not None:
                opened[span] = len(pieces)
            pieces.append(self._marker)
            words.append(-1)
        pieces += [*ids[done:], *self.frame.suffix]
        words += [*token_of[done:], *[-1] * len(self.frame.suffix)]
        return Marked(pieces, words, [opened[span] for span in spans])


class Window(NamedTuple):
    """The pieces [first, end) of a document; in the window, they begin at the place `front`."""

    first: int
    end: int
    front: int


class Frame(NamedTuple):
    """The special pieces before and after every text."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


def windows(length: int, frame: Frame, limit: int) -> list[Window]:
    """The windows of a document of `length` pieces, its frame included, for an encoder that reads `limit`."""
    if length <= limit:
        return [Window(0, length, 0)]
    front = len(frame.prefix)
    around = front + len(frame.suffix)
    room, content = limit - around, length - around
    count = 1 - -(content - room) // (room - room // SHARED)
    starts = np.rint(np.linspace(0, content - room, count)).astype(int).tolist()
    found = [Window(front + start, front + start + room, front) for start in starts]
    found[0] = Window(0, found[0].end, 0)
    found[-1] = Window(found[-1].first, length, front)
    return found


@dataclass(frozen=True, slots=True)
class DocumentBatch(Batch):
    """`D` documents in `W` windows, with `M` mentions of `E` entities and `P` pairs.

    Instead of sentences, `words` and `starts` are about windows; `head` and `tail` are about pairs, and have
    entities' numbers in the batch. Bag d is the pairs of document d. `labels` are [P, R - 1] floats, 1 for the
    relations that a pair has; `NA`, which means none, has no column. `rows` are the documents' rows.
    """

    windows: tuple[tuple[Window, ...], ...]  # of each document
    lengths: tuple[int, ...]  # [D], pieces of each document
    entities: tuple[int, ...]  # [D + 1], document d has the entities entities[d]:entities[d + 1]
    mentions: tuple[int, ...]  # [D + 1], likewise its mentions, by entity
    entity: torch.Tensor  # [M] int64, the entity of each mention
    place: torch.Tensor  # [M] int64, the place of its opening marker in its document
    pairs: np.ndarray  # [P] int64, the pairs' numbers in the corpus


@dataclass(frozen=True, slots=True)
class Task:
    """A window to be read, and the mentions of its document whose opening markers are in it."""

    number: int  # in the batch
    window: Window
    length: int  # in pieces, with its frame
    mentions: Tensor  # [m], by their numbers in the document
    where: Tensor  # [m], their markers' places in the window


@dataclass(frozen=True, slots=True)
class Part:
    """The encoder's output for a window: the states of its pieces, and the attention of its mentions."""

    task: Task
    states: Tensor  # [l, d]
    attention: Tensor  # [h, m, l]

    @property
    def own(self) -> slice:
        """The pieces of the window that belong to the document, without the frame."""
        window = self.task.window
        return slice(window.front, window.front + window.end - window.first)


def tasks(batch: DocumentBatch) -> Iterator[tuple[int, list[Task]]]:
    """The windows of each document that has pairs; documents without pairs need not be read."""
    starts, bags = batch.starts.tolist(), batch.bags.tolist()
    number = 0
    for document, windows in enumerate(batch.windows):
        first, number = number, number + len(windows)
        if bags[document] == bags[document + 1]:
            continue
        place = batch.place[batch.mentions[document] : batch.mentions[document + 1]]
        found = []
        for at, window in enumerate(windows, first):
            mentions = ((window.first <= place) & (place < window.end)).nonzero().squeeze(1)
            where = place[mentions] - window.first + window.front
            found.append(Task(at, window, starts[at + 1] - starts[at], mentions, where))
        yield document, found


def merge(parts: Sequence[Part], share: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """A document's states, [L, d], and its entities' attention, [h, E, L], from its windows.

    `share` [E, M] is each mention's share in its entity. The state of a piece that is in several windows is their
    mean. A mention's attention is the sum over its windows, without frames that do not belong to the document,
    divided by its total (as in ATLOP).
    """
    if len(parts) == 1:
        (part,) = parts
        return part.states, share[:, part.task.mentions] @ part.attention
    width, heads = parts[0].states.shape[1], len(parts[0].attention)
    states, read = share.new_zeros((length, width)), share.new_zeros((length, 1))
    whole = share.new_zeros((heads, share.shape[1]))
    for part in parts:
        span = slice(part.task.window.first, part.task.window.end)
        states[span] += part.states[part.own]
        read[span] += 1
        whole = whole.index_add(1, part.task.mentions, part.attention[:, :, part.own].sum(2))
    attention = share.new_zeros((heads, len(share), length))
    for part in parts:
        seen = part.task.mentions
        shares = part.attention[:, :, part.own] / whole[:, seen, None].clamp_min(_LEAST)
        attention[:, :, part.task.window.first : part.task.window.end] += share[:, seen] @ shares
    return states / read, attention


def _spaced(text: str, tokens: Sequence[Sequence[int]]) -> list[str]:
    """The tokens, each with the space before it, if there is one: it tells the beginning of a word."""
    return [" " * (start > 0 and text[start - 1].isspace()) + text[start:end] for start, end in tokens]


_LEAST = 1e-20  # the smallest divisor: dropout may leave a mention without any attention
