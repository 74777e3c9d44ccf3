"""A corpus as a kind of extractor reads it: words for PCNN, pieces for a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrel.data.bags import Bags, ragged
from fedrel.data.sentences import SentenceCorpus
from fedrel.extractors.inputs import Inputs, Ints, tensor
from fedrel.tensors import kernels

if TYPE_CHECKING:
    from fedrel.extractors.base import Batch


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Words by their ids in the model's vocabulary."""

    corpus: SentenceCorpus
    lookup: Ints  # [words of the corpus], their ids in the model's vocabulary

    def lengths(self, rows: Ints) -> Ints:
        """How many words each row has."""
        lengths: Ints = self.corpus.starts[rows + 1] - self.corpus.starts[rows]
        return lengths

    def batch(self, bags: Bags, device: str = "cpu") -> Batch:
        """The sentences of these bags."""
        from fedrel.extractors.base import Batch

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
            from fedrel.extractors.pcnn.kernels.rows import lay_end_to_end

            return lay_end_to_end(corpus.tokens, corpus.starts, self.lookup, rows)
        sizes = self.lengths(rows)
        words = self.lookup[corpus.tokens[ragged(corpus.starts[rows], sizes)]]
        return words, np.concatenate(([0], np.cumsum(sizes)))

    def save(self, folder: Path) -> None:
        """Only the lookup: the corpus has its own folder."""
        np.save(folder / "lookup.npy", self.lookup)
