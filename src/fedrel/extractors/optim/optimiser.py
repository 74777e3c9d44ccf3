"""The optimiser of a site's local training, as the config asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn.utils import get_total_norm

from fedrel.extractors.optim.adamw import AdamW
from fedrel.extractors.optim.sgd import SGD
from fedrel.extractors.row_tables import RowEmbedding

if TYPE_CHECKING:
    from fedrel.config.schema import Training
    from fedrel.extractors.base import Extractor
    from fedrel.extractors.objective import Correction


class Optimiser(Protocol):
    """Takes steps by gradients."""

    lr: float

    def step(self) -> None:
        """Take a step by the gradients of the last backward pass, and clear them."""

    def zero_grad(self) -> None:
        """Drop gradients without using them."""


def optimiser(
    extractor: Extractor, training: Training, round_: int, steps: int, correction: Correction | None = None
) -> Optimiser:
    """An optimiser for one round of `steps` local steps, whose gradients get `correction` added."""
    rate, decay = training.learning_rate_in(round_), training.weight_decay
    head = (training.head_learning_rate or training.learning_rate) / training.learning_rate
    if training.clip is None and not training.follows_run:
        if training.optimiser == "sgd":
            return SGD(extractor, rate, decay, correction)
        return AdamW(extractor, rate, decay, correction, head=head)
    made: _GuidedSGD | _GuidedAdamW = (
        _GuidedSGD(extractor, rate, decay, correction)
        if training.optimiser == "sgd"
        else _GuidedAdamW(extractor, rate, decay, correction, head=head)
    )
    factor = partial(training.rate_factor, round_, steps=steps)
    made.guide = Guide(extractor, lambda step: rate * factor(step), training.clip)
    return made


class Guide:
    """Sets the learning rate of each step, `rate_of` its number from 1, and clips its gradient.

    The norm that is limited is that of the batch's gradient over all weights, word tables' rows included, before
    decay and corrections.
    """

    def __init__(self, extractor: Extractor, rate_of: Callable[[int], float], clip: float | None) -> None:
        self._rate_of, self._clip, self._steps = rate_of, clip, 0
        self._dense = [weight for weight in extractor.parameters() if weight.requires_grad]
        self._tables = [module for module in extractor.modules() if isinstance(module, RowEmbedding)]

    def rate(self) -> float:
        """The learning rate of the next step."""
        self._steps += 1
        return self._rate_of(self._steps)

    @torch.no_grad()
    def clip(self) -> None:
        """Scale the gradient down to the largest norm allowed."""
        if self._clip is None:
            return
        dense = [weight.grad for weight in self._dense if weight.grad is not None]
        norm = get_total_norm([*dense, *(table.gradient()[1] for table in self._tables)])
        if norm > self._clip:
            gradients = [*dense, *(one for table in self._tables for one in table.gradients())]
            torch._foreach_mul_(gradients, self._clip / float(norm))


class _GuidedSGD(SGD):
    guide: Guide

    def step(self) -> None:
        """A step at its own learning rate, by the clipped gradient."""
        self.lr = self.guide.rate()
        self.guide.clip()
        super().step()


class _GuidedAdamW(AdamW):
    guide: Guide

    def step(self) -> None:
        """A step at its own learning rate, by the clipped gradient."""
        self.lr = self.guide.rate()
        self.guide.clip()
        super().step()
