"""A corpus as a kind of extractor reads it: words for PCNN, pieces for a transformer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import SCORED_AT_ONCE, Bags, ragged
from fedrel.data.columns import Corpus
from fedrel.data.documents.columns import DocumentCorpus
from fedrel.extractors import kernels

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.batch import Batch

Ints = npt.NDArray[np.int64]


class Inputs(ABC):
    """Gathers bags of a corpus's rows into batches."""

    at_once: ClassVar[int] = SCORED_AT_ONCE
    """How many rows are best read together where nothing is trained."""

    @abstractmethod
    def lengths(self, rows: Ints) -> Ints:
        """How many tokens each row has."""

    @abstractmethod
    def batch(self, bags: Bags, device: str = "cpu") -> Batch:
        """The sentences of these bags."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Leave for other processes of this machine what `open_inputs` finds again."""


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Words by their ids in the model's vocabulary."""

    corpus: Corpus
    lookup: Ints  # [words of the corpus], their ids in the model's vocabulary

    def lengths(self, rows: Ints) -> Ints:
        """How many words each row has."""
        lengths: Ints = self.corpus.starts[rows + 1] - self.corpus.starts[rows]
        return lengths

    def batch(self, bags: Bags, device: str = "cpu") -> Batch:
        """The sentences of these bags."""
        from fedrel.extractors.batch import Batch

        corpus, rows = self.corpus, bags.rows
        words, starts = self._end_to_end(rows)
        return Batch(
            words=tensor(words, device),
            starts=tensor(starts, device),
            head=tensor(corpus.head[rows], device),
            tail=tensor(corpus.tail[rows], device),
            bags=tensor(bags.bounds, device),
            labels=tensor(bags.labels, device),
            rows=rows,
        )

    def _end_to_end(self, rows: Ints) -> tuple[Ints, Ints]:
        """The words of sentences, and where each starts among them."""
        corpus = self.corpus
        if kernels.available():
            from fedrel.extractors.kernels.reading import lay_end_to_end

            return lay_end_to_end(corpus.tokens, corpus.starts, self.lookup, rows)
        sizes = self.lengths(rows)
        words = self.lookup[corpus.tokens[ragged(corpus.starts[rows], sizes)]]
        return words, np.concatenate(([0], np.cumsum(sizes)))

    def save(self, folder: Path) -> None:
        """Only the lookup: the corpus has its own folder."""
        np.save(folder / "lookup.npy", self.lookup)


def tensor(array: npt.NDArray[np.integer[Any]], device: str) -> torch.Tensor:
    """Integers as torch indexes with them."""
    import torch

    made = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    return made if device == "cpu" else made.to(device)


def open_inputs(folder: Path, corpus: Corpus | DocumentCorpus) -> Inputs:
    """What an `Inputs` saved in this folder."""
    if isinstance(corpus, DocumentCorpus):
        from fedrel.extractors.document_pieces import DocumentInputs

        return DocumentInputs.open(folder, corpus)
    if (folder / "lookup.npy").exists():
        return WordInputs(corpus, np.asarray(np.load(folder / "lookup.npy", mmap_mode="r")))
    from fedrel.extractors.pieces import PieceInputs

    return PieceInputs.open(folder)
