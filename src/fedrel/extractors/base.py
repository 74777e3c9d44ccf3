"""What every extractor is: a network that turns sentences into vectors, with a linear classifier over relations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS, Reading
from fedrel.extractors.objective import PLAIN, DPSteps, Objective
from fedrel.extractors.row_tables import RowEmbedding, as_tensor
from fedrel.tensors.weights import Rows, Tensors, Weights


class Fitted(NamedTuple):
    """The outcome of `Extractor.fit`."""

    losses: npt.NDArray[np.float64]  # of each step
    shares: npt.NDArray[np.float64]  # [S] how much each sentence was trained on, over all steps
    path: float  # how far the steps move a weight under a constant gradient of 1 (`SGD.path`)


class Copies(NamedTuple):
    """Copies of weights in bfloat16. They are made again after a weight has changed.

    An optimiser may renew them with the weights instead, in one pass over memory; then it calls `renewed`.
    """

    of: dict[Tensor, Tensor]  # by the weight
    renewed: Callable[[], None]


class Extractor(nn.Module, ABC):
    """A sentence encoder with a linear classifier over relations.

    A process has one extractor and trains it for many sites in turn: `begin` sets it to the weights that a site
    starts from, undoing only what the last site changed, and `update` returns what training changed since.
    """

    classifier: nn.Linear
    dropout: float

    def __init__(self) -> None:
        super().__init__()
        self._base: Weights | None = None  # what training began with
        self._start: dict[str, Tensor] = {}  # the same as tensors, without the tables
        self._begun: dict[str, int] = {}  # each parameter's version when it was last set to them

    @abstractmethod
    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, d], before the classifier's dropout.

        With a generator, for training, an encoder with dropout of its own draws it from there.
        """

    def read(self, head: str, batch: Batch, generator: torch.Generator | None) -> Reading:
        """What a bag head makes of a batch in training; the generator draws the dropout, none means no dropout."""
        return HEADS[head].read(self, batch, generator)

    def probabilities(self, head: str, batch: Batch) -> Tensor:
        """p(r | bag) as a bag head reads it, [B, R]."""
        return HEADS[head].probabilities(self, batch)

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss that training minimises: the cross-entropy, for examples that have one relation."""
        return nn.functional.cross_entropy(logits, labels)

    def compute_in(self, precision: str) -> None:
        """Compute matrix products in this precision, `float32` or `bfloat16`, if this extractor can choose."""

    def copies(self) -> Copies | None:
        """The copies of weights that matrix products read, if they read any."""
        return None

    def is_new(self, name: str) -> bool:
        """Whether the weight of this name was drawn, and not pretrained."""
        return True

    @property
    def has_kernels(self) -> bool:
        """Whether kernels, which do not hold the interpreter's lock, do most of the work."""
        return False

    def can_fit(self, head: str) -> bool:
        """Whether `fit` can train an objective with this bag head."""
        return False

    def fit(
        self,
        batch: Batch,
        orders: Sequence[npt.NDArray[np.int64]],
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        seed: int,
        objective: Objective = PLAIN,
    ) -> Fitted:
        """Train on an objective with SGD, an epoch in each of these orders of the bags."""
        raise NotImplementedError

    def can_fit_with_noise(self, head: str) -> bool:
        """Whether `fit_with_noise` can train an objective with this bag head."""
        return False

    def fit_with_noise(
        self,
        batch: Batch,
        steps: DPSteps,
        *,
        lr: float,
        weight_decay: float,
        seed: int,
        objective: Objective = PLAIN,
    ) -> Fitted:
        """Train on an objective with DP-SGD."""
        raise NotImplementedError

    @property
    def reads_separately(self) -> bool:
        """Whether a sentence's vector is the same to the bit whatever is read with it, and `fit_several` works."""
        return False

    def fit_several(
        self,
        batch: Batch,
        orders: Sequence[Sequence[npt.NDArray[np.int64]]],
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        seeds: Sequence[int],
        objective: Objective = PLAIN,
    ) -> list[tuple[Fitted, Tensors]]:
        """`fit` and `update` for several sites, each from the weights that `begin` was given, which stay.

        The batch has the first site's bags, then the second's, and so on; a site has its orders and its seed. The
        objective must be plain.
        """
        raise NotImplementedError

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by name: what a message of weights must look like."""
        return {name: tuple(parameter.shape) for name, parameter in self._weights.items()}

    def state(self) -> dict[str, npt.NDArray[np.float32]]:
        """All weights by name, as a copy."""
        tables = self._tables
        return {
            name: (tables[name].dense() if name in tables else parameter.detach().clone()).cpu().numpy()
            for name, parameter in self._weights.items()
        }

    def frozen(self) -> dict[str, npt.NDArray[np.float32]]:
        """The parameters that training leaves as they are, by name: with `state`, all that there are."""
        return {
            name: parameter.detach().clone().cpu().numpy()
            for name, parameter in self.named_parameters()
            if name not in self._weights
        }

    def load(self, weights: Weights) -> None:
        """Set all weights, after checking their names and shapes."""
        self._base = None  # the same object may hold other numbers by now
        self.begin(weights)
        self._base = None

    @torch.no_grad()
    def begin(self, weights: Weights) -> None:
        """Start a site's work from `weights`.

        If it is the same object as last time, which must not have been written to since, only what training changed
        is copied; any other object is copied whole.
        """
        same, tables = weights is self._base, self._tables
        if not same:
            self._check(weights)
            self._base, self._begun = weights, {}
            self._start = {name: as_tensor(weights[name]) for name in self._weights if name not in tables}
        for name, parameter in self._weights.items():
            parameter.grad = None
            if name in tables:
                tables[name].restart(weights[name], only_touched=same)
            elif parameter._version != self._begun.get(name):
                parameter.copy_(self._start[name])
                self._begun[name] = parameter._version

    def update(self) -> dict[str, npt.NDArray[np.float32] | Rows]:
        """The weights after training since `begin`: dense ones whole, word tables by changed rows."""
        tables = self._tables
        return {
            name: tables[name].changed() if name in tables else parameter.detach().clone().cpu().numpy()
            for name, parameter in self._weights.items()
        }

    @cached_property
    def _weights(self) -> dict[str, nn.Parameter]:
        """What training changes, and so what is sent; a frozen parameter is the same everywhere and is not sent."""
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if parameter.requires_grad or name in self._tables
        }

    @cached_property
    def _tables(self) -> dict[str, RowEmbedding]:
        return {
            f"{name}.weight": module
            for name, module in self.named_modules()
            if isinstance(module, RowEmbedding)
        }

    def _check(self, weights: Weights) -> None:
        expected = self.shapes()
        if missing := sorted(expected.keys() ^ weights.keys()):
            raise UserError(
                f"these weights are not this extractor's: {', '.join(missing)} on one side only",
                hint="build the extractor with the settings the weights were trained with",
            )
        for name, shape in expected.items():
            if weights[name].shape != shape:
                raise UserError(
                    f"weight {name!r} has shape {weights[name].shape}, this extractor needs {shape}",
                    hint="build the extractor with the settings the weights were trained with",
                )


def linear(inputs: int, outputs: int, *, bias: bool, generator: torch.Generator) -> nn.Linear:
    """A layer with the initial weights of `nn.Linear`, but drawn from the given generator."""
    layer = empty_linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer


def empty_linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A layer whose weights are whatever was in memory; `nn.Linear` would draw them from a global generator.

    `to_empty` would do the same, but imports half a second's worth of torch.
    """
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta")
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer
