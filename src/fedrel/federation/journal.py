"""What a site notes of its own training, for itself: nothing of it crosses the boundary.

On one machine the simulation may read it, which is how we know which sentence each method trained on and,
where the truth is known (the built-in world), how many of them really express their relation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.base import Batch


@dataclass(slots=True)
class Entry:
    """One site's round: training weight in all, on sentences that express their relation, and by watched row."""

    weight: float = 0.0
    expressing: float = 0.0
    watched: dict[int, float] = field(default_factory=dict)


class Journal:
    """Collects an entry while a site trains. Sentences of `NA` pairs have nothing to express: left out."""

    def __init__(self, corpus: Corpus, truth_known: bool, watched: npt.NDArray[np.int64]) -> None:
        self._corpus, self._truth_known, self._watched = corpus, truth_known, watched
        self.entry = Entry()

    def trained(self, batch: Batch, weights: Tensor) -> None:
        """Note how much each sentence of a batch was trained on (0 to 1)."""
        if not self._truth_known and not len(self._watched):
            return
        corpus = cast(SentenceCorpus, self._corpus)  # of documents nothing is followed
        weight = weights.detach().cpu().numpy().astype(np.float64)
        facts = np.asarray(corpus.relation[batch.rows]) != 0
        if self._truth_known:
            self.entry.weight += float(weight[facts].sum())
            self.entry.expressing += float(weight[facts & (corpus.expresses[batch.rows] == 1)].sum())
        for at in self._seen(batch.rows):
            row = int(batch.rows[at])
            self.entry.watched[row] = self.entry.watched.get(row, 0.0) + float(weight[at])

    def _seen(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where watched rows, which are ascending, stand among these."""
        if not len(self._watched):
            return np.zeros(0, dtype=np.int64)
        place = np.searchsorted(self._watched[:-1], rows)
        return np.flatnonzero(self._watched[place] == rows)
