"""How well a model's p(r|s) tells sentences that state their relation from those that do not, where people judged.

The area under the ROC curve: the chance that a sentence that states its relation has a higher probability of it
than one that does not, ties counted half. Sentences about one triple are one unit of the bootstrap: they are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.bootstrap import Units
from fedrel.evaluation.outcome import Ints


@dataclass(frozen=True, eq=False)
class JudgedUnits(Units):
    """Judged sentences: the unit of each, [n], whether it states its relation, [n], and p(r|s), [n]."""

    metrics: ClassVar[frozenset[str]] = frozenset({"detection"})

    unit: Ints
    states: NDArray[np.bool_]
    probability: NDArray[np.float64]

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.unit.max(initial=-1)) + 1

    def value(self, metric: str, times: Ints) -> float:
        """The area under the ROC curve; a half where all sentences have the same verdict."""
        assert metric == "detection"
        weight = times[self.unit].astype(np.float64)
        _, level = np.unique(self.probability, return_inverse=True)
        stating = np.bincount(level, weight * self.states)
        other = np.bincount(level, weight * ~self.states)
        below = np.cumsum(other) - other
        pairs = stating.sum() * other.sum()
        return float((stating * (below + other / 2)).sum() / pairs) if pairs else 0.5
