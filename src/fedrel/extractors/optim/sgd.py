"""Plain stochastic gradient descent, at the cost of the weights that a batch uses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedrel.extractors.base import Extractor
from fedrel.extractors.objective import Correction, Course
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.weights import Rows


class SGD:
    """`p -= lr * (gradient + weight_decay * p + correction)` for every parameter, word tables by rows.

    It must be made at the start of a round: a correction pulls to the weights that it finds then.
    """

    def __init__(
        self, extractor: Extractor, lr: float, weight_decay: float = 0.0, correction: Correction | None = None
    ) -> None:
        correction = correction or Correction()
        self.lr, self.weight_decay, self._pull = lr, weight_decay, correction.pull
        self._course = Course()
        dense = {name: weight for name, weight in extractor.named_parameters() if weight.requires_grad}
        self._dense: list[Tensor] = list(dense.values())
        self._constants = constants(correction, dense)
        self._tables: list[RowEmbedding] = []
        for name, module in extractor.named_modules():
            if isinstance(module, RowEmbedding):
                self._tables.append(module)
                if correction:
                    own = correction.own.get(f"{name}.weight")
                    assert not isinstance(own, np.ndarray), f"{name} is a table of rows"
                    module.correct(correction.pull, own, correction.common.get(f"{name}.weight"))

    @torch.no_grad()
    def step(self) -> None:
        """Take a step by the gradients of the last backward pass, and clear them."""
        self._course.step(self.lr, self.weight_decay, self._pull)
        torch._foreach_mul_(self._dense, 1 - self.lr * (self.weight_decay + self._pull))
        if self._constants:
            torch._foreach_add_(self._dense, self._constants, alpha=-self.lr)
        moving = [(weight, weight.grad) for weight in self._dense if weight.grad is not None]
        if moving:
            weights, gradients = zip(*moving, strict=True)
            torch._foreach_add_(weights, gradients, alpha=-self.lr)
        for table in self._tables:
            table.descend(self.lr, self.weight_decay)
        self.zero_grad()

    @property
    def path(self) -> float:
        """How far the steps so far took a weight for each unit of a constant force: the sum of the learning
        rates, each faded by the decay and the pull of the steps after it."""
        return -self._course.drift

    def zero_grad(self) -> None:
        """Drop gradients without using them; a forward pass that waits for its backward pass still counts."""
        for weight in self._dense:
            weight.grad = None
        for table in self._tables:
            table.zero_grad()


def constants(correction: Correction, start: Mapping[str, Tensor]) -> list[Tensor]:
    """Of each dense weight, what its correction has beside `pull * weight`: nothing where nothing is corrected."""
    if not correction:
        return []
    found = []
    for name, weight in start.items():
        constant = -correction.pull * weight.detach()
        for force in (correction.own.get(name), correction.common.get(name)):
            if force is not None:
                assert not isinstance(force, Rows), f"{name} is no table of rows"
                constant += torch.tensor(force).to(constant)
        found.append(constant)
    return found
