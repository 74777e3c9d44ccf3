"""FedAtt: Ji et al. 2019, Learning Private Neural Language Modeling with Attentive Aggregation.

Each tensor of the global model moves towards the sites' tensors, more towards those that are farther away
(Algorithm 1). The sizes of the sites do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedrel.federation.messages import Update
from fedrel.federation.method import OwnStep
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, Rows, Sum, Tensors, Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


class FedAtt(FedAvg):
    """FedAvg with attention over the sites, tensor by tensor, in place of the mean."""

    name: ClassVar[str] = "fedatt"
    paper: ClassVar[str] = (
        "Ji et al. 2019, Learning Private Neural Language Modeling with Attentive Aggregation"
    )

    single_answers: ClassVar[str] = "fedatt's attention over the sites"

    step: float = Field(1.2, gt=0)
    """ε, how far the weights move; 1.2 is the value of the authors' released code."""

    def aggregator(self, fed: Federation) -> Sum:
        """w - step * sum_k a_k (w - w_k), a = softmax_k ||w - w_k||."""
        return AttentiveSum(fed.weights, self.step)

    def update_weight(self, update: Update) -> float:
        """Attention alone decides how much an update counts."""
        return 1.0

    def reach(self, own: OwnStep) -> float:
        """The attentive mean goes no farther than the farthest site, and the step multiplies it."""
        return super().reach(own) + self.step * own.length

    @classmethod
    def unsuited(cls) -> str | None:
        """No other part can change how much an update counts."""
        if cls.update_weight is not FedAtt.update_weight:
            return "attention alone decides how much an update counts, so a part that changes that is ignored"
        return super().unsuited()


class AttentiveSum:
    """w - step * sum_k a_k (w - w_k), a = softmax_k ||w - w_k||_2, for each tensor w.

    The softmax is kept as a running sum relative to the largest distance so far, so that memory is that of
    one model, whatever the number of sites.
    """

    def __init__(self, base: Weights, step: float) -> None:
        self._base, self._step = base, step
        self._largest = dict.fromkeys(base, -np.inf)
        self._normaliser = dict.fromkeys(base, 0.0)
        self._sums = {name: np.zeros(tensor.shape) for name, tensor in base.items()}
        self._rest = dict.fromkeys(base, 0.0)  # how much of `base` itself the sum of each tensor holds

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights; `weight` is not used, attention decides."""
        for name, tensor in tensors.items():
            base = self._base[name].astype(np.float64)
            if isinstance(tensor, Rows):
                fading = 1 - tensor.rest  # w - w_k is fading * w, but in the rows that the site changed
                apart = base[tensor.index] - tensor.values
                usual = fading * base[tensor.index]
                squares = fading**2 * np.square(base).sum() - np.square(usual).sum() + np.square(apart).sum()
                share = self._share(name, float(np.sqrt(max(squares, 0.0))))
                self._sums[name][tensor.index] += share * (apart - usual)
                self._rest[name] += share * fading
            else:
                apart = base - tensor
                self._sums[name] += self._share(name, float(np.linalg.norm(apart))) * apart

    def result(self) -> Weights:
        """The next global weights; `NoAnswerError` if nothing was added."""
        if not all(self._normaliser.values()):
            raise NoAnswerError
        moved = {}
        for name, base in self._base.items():
            apart = (self._sums[name] + self._rest[name] * base) / self._normaliser[name]
            moved[name] = (base - self._step * apart).astype(np.float32)
        return moved

    def _share(self, name: str, distance: float) -> float:
        """exp(distance) relative to the largest distance so far; if that grows, earlier terms are scaled down."""
        largest = max(self._largest[name], distance)
        shrink, share = np.exp(self._largest[name] - largest), float(np.exp(distance - largest))
        self._sums[name] *= shrink
        self._rest[name] *= shrink
        self._normaliser[name] = self._normaliser[name] * shrink + share
        self._largest[name] = largest
        return share
