"""The optimiser of a site's local training, as the config asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedrel.extractors.sgd import SGD

if TYPE_CHECKING:
    from fedrel.config import Training
    from fedrel.extractors.base import Extractor


class Optimiser(Protocol):
    """Goes down gradients."""

    def step(self) -> None:
        """Go down the gradients of the last backward pass, and clear them."""

    def zero_grad(self) -> None:
        """Drop gradients without using them."""


def optimiser(extractor: Extractor, training: Training, round_: int, steps: int) -> Optimiser:
    """An optimiser for one round of `steps` local steps."""
    return SGD(extractor, lr=training.learning_rate_in(round_), weight_decay=training.weight_decay)
