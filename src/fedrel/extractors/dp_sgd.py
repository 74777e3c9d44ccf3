"""The gradients of DP-SGD (Abadi et al. 2016, Algorithm 1), which makes local steps differentially private.

A step takes each example with the same probability, independently of all others. The gradient of every example
is scaled down to a norm of at most `clip`, normal noise of `noise` times `clip` is added to their sum, and the
result is divided by the expected number of examples, whatever their real number. `ClippedSum` does that for
every extractor, bag head and loss, with a backward pass for each example. Where an extractor has kernels, they
need one for all.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedrel.extractors.base import Extractor
from fedrel.extractors.objective import DPSteps
from fedrel.extractors.optimisers import norms
from fedrel.extractors.row_tables import RowEmbedding


class ClippedSum:
    """The gradient of a step, example by example, over all weights that are trained."""

    def __init__(self, extractor: Extractor, steps: DPSteps) -> None:
        self._steps = steps
        self._dense = [weight for weight in extractor.parameters() if weight.requires_grad]
        self._tables = [module for module in extractor.modules() if isinstance(module, RowEmbedding)]
        self._sums = [torch.zeros_like(weight) for weight in (*self._dense, *self._table_weights())]

    @torch.no_grad()
    def add(self) -> float:
        """Add the gradient that the last backward pass left, that of one example, and clear it; returns its norm.

        A gradient that is not finite counts as zero: what one example can change is bounded, whatever it is.
        """
        rows = [table.gradient() for table in self._tables]
        found = [
            (total, weight.grad)
            for total, weight in zip(self._sums, self._dense, strict=False)
            if weight.grad is not None
        ]
        gradients = [gradient for _, gradient in found]
        every = norms([*gradients, *(values for _, values in rows)])
        norm = math.sqrt(sum(float(one) ** 2 for one in every))
        if math.isfinite(norm):
            share = min(1.0, self._steps.clip / norm) if norm else 1.0
            if found:
                torch._foreach_add_([total for total, _ in found], gradients, alpha=share)
            for total, (index, values) in zip(self._sums[len(self._dense) :], rows, strict=True):
                total.index_add_(0, index, values, alpha=share)
        for weight in self._dense:
            weight.grad = None
        for table in self._tables:
            table.drop_gradient()
        return norm

    @torch.no_grad()
    def finish(self) -> None:
        """Leave the step's gradient where an optimiser finds it, and begin anew.

        Every row of a table gets noise: which rows had none would tell which words the examples have.
        """
        spread = self._steps.noise * self._steps.clip
        for total in self._sums:
            drawn = torch.from_numpy(self._steps.draw(total.numel())).view_as(total)
            total.add_(drawn.to(total), alpha=spread).div_(self._steps.expected)
        for weight, total in zip(self._dense, self._sums, strict=False):
            weight.grad = total.clone()
        for table, total in zip(self._tables, self._sums[len(self._dense) :], strict=True):
            table.replace_gradient(total.clone())
        for total in self._sums:
            total.zero_()

    def _table_weights(self) -> list[Tensor]:
        return [table.weight.detach() for table in self._tables]
