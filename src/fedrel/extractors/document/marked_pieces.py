"""A corpus of documents as word pieces with `*` around every mention: made once, then mapped from the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, ragged
from fedrel.data.column_files import check_sums, write_sums
from fedrel.data.documents import DocumentCorpus
from fedrel.errors import UserError
from fedrel.extractors.batches import Inputs, Ints, tensor
from fedrel.extractors.document.windows import Frame, windows
from fedrel.files import atomic_folder, cache_folder, write_text

if TYPE_CHECKING:
    from fedrel.extractors.document.windows import DocumentBatch


FORMAT = 1  # of the folder; part of its name in the cache
MARKER = "*"
AT_ONCE = 256  # documents: enough for the tokeniser's threads, few enough for memory

_COLUMNS = {"pieces": np.int32, "starts": np.int64, "words": np.int32, "places": np.int32}
_ABOUT = "about.json"
_AGAIN = "remove the folder; it will be made again"
_POINTER = "documents.json"


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
        import torch

        from fedrel.extractors.document.windows import DocumentBatch

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


def _spaced(text: str, tokens: Sequence[Sequence[int]]) -> list[str]:
    """The tokens, each with the space before it, if there is one: it tells the beginning of a word."""
    return [" " * (start > 0 and text[start - 1].isspace()) + text[start:end] for start, end in tokens]
