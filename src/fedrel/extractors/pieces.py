"""A corpus as a transformer's word pieces: tokenised once, then mapped from the cache in milliseconds."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, ragged
from fedrel.data.cache import cache_folder
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs, Ints, tensor
from fedrel.files import atomic_folder, write_text

if TYPE_CHECKING:
    from fedrel.config import TransformerSection
    from fedrel.data.columns import Corpus
    from fedrel.extractors.batch import PieceBatch
    from fedrel.extractors.wordpieces import Sentence, Tokeniser

FORMAT = 1  # of the folder; part of its name in the cache
AT_ONCE = 4096  # sentences: enough for the tokeniser's threads, little enough for memory

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
        from fedrel.extractors.batch import PieceBatch

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

    def save(self, folder: Path) -> None:
        """Only where the columns are: every process of this machine can map them."""
        write_text(folder / _POINTER, json.dumps({"folder": str(self.folder)}))

    @staticmethod
    def open(folder: Path) -> PieceInputs:
        """The pieces that `tokenise` wrote in this folder, or that `save` left word of there."""
        try:
            if (folder / _POINTER).exists():
                folder = Path(json.loads((folder / _POINTER).read_text(encoding="utf-8"))["folder"])
            columns = {name: _map(folder, name) for name in _COLUMNS}
            head, tail = columns["head"].reshape(-1, 2), columns["tail"].reshape(-1, 2)
            if not len(head) == len(tail) == len(columns["starts"]) - 1:
                raise ValueError("its columns do not fit each other")
        except (OSError, ValueError, KeyError) as error:
            remedy = "remove the folder, and it will be made again"
            raise UserError(f"not a tokenised corpus: {error}", file=folder, remedy=remedy) from error
        return PieceInputs(folder.absolute(), columns["pieces"], columns["starts"], head, tail)


def tokenise(
    corpus: Corpus,
    section: TransformerSection,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> PieceInputs:
    """The pieces of every row of a corpus, from the cache if they are there; `folder` keeps them elsewhere.

    `progress` is told now and then how many rows are done.
    """
    from fedrel.extractors.wordpieces import Tokeniser

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
    return PieceInputs.open(folder)


def _write(
    folder: Path, corpus: Corpus, tokeniser: Tokeniser, progress: Callable[[int], None] | None
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


def _sentences(corpus: Corpus, begin: int, end: int) -> list[Sentence]:
    from fedrel.extractors.wordpieces import Sentence

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
    # A file of no bytes cannot be mapped. A plain array is a faster view of the same memory than a memmap.
    empty = path.stat().st_size == 0
    return np.empty(0, _COLUMNS[name]) if empty else np.asarray(np.memmap(path, _COLUMNS[name], mode="r"))
