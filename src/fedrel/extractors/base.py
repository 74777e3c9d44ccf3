"""Sentences laid end to end without padding, and the bags they form: what every extractor reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.weights import Rows, Weights

if TYPE_CHECKING:
    from fedrel.extractors.heads import Reading


@dataclass(frozen=True, slots=True)
class Batch:
    """`S` sentences of `T` tokens in all, in `B` bags.

    A batch of plain sentences is a batch of bags of one sentence each.
    """

    words: torch.Tensor  # [T] int64, ids in the model's vocabulary
    starts: torch.Tensor  # [S + 1] int64, sentence s is words[starts[s]:starts[s + 1]]
    head: torch.Tensor  # [S] int64, the head's first token, counted within its sentence
    tail: torch.Tensor  # [S] int64, likewise the tail's
    bags: torch.Tensor  # [B + 1] int64, bag b is the sentences bags[b]:bags[b + 1]
    labels: torch.Tensor  # [B] int64, the relation of each bag
    rows: np.ndarray  # [S] int64, where each sentence stands in its corpus

    def take(self, sentences: torch.Tensor) -> Self:
        """Some of the sentences, each a bag of its own with the label of the bag it is in."""
        return type(self)(**self._taken(sentences))

    def _taken(self, sentences: torch.Tensor) -> dict[str, Any]:
        lengths = self.starts.diff()[sentences]
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.starts[sentences] - starts[:-1], lengths)
        bag = torch.searchsorted(self.bags, sentences, right=True) - 1
        return {
            "words": self.words[torch.arange(len(shift), device=shift.device) + shift],
            "starts": starts,
            "bags": torch.arange(len(sentences) + 1, device=shift.device),
            "labels": self.labels[bag],
            "rows": self.rows[sentences.cpu().numpy()],
        } | {name: getattr(self, name)[sentences] for name in self._by_sentence()}

    @classmethod
    def _by_sentence(cls) -> list[str]:
        """The fields with one entry a sentence and nothing else to mind."""
        told = {"words", "starts", "bags", "labels", "rows"}
        return [field.name for field in fields(cls) if field.name not in told]


@dataclass(frozen=True, slots=True)
class PieceBatch(Batch):
    """Sentences as a transformer's word pieces, of which an entity may have several."""

    head_end: torch.Tensor  # [S] int64, the piece after the head's last
    tail_end: torch.Tensor  # [S] int64, likewise the tail's


class Fitted(NamedTuple):
    """What is to be known of training that was done at once."""

    losses: npt.NDArray[np.float64]  # of each step
    times: npt.NDArray[np.int64]  # [S] how often each sentence was trained on


class Extractor(nn.Module, ABC):
    """A sentence encoder with a linear classifier over relations.

    One extractor lives in a process and works for many sites in turn: `begin` puts it back to the
    weights a site starts from, undoing only what the last site changed, and `update` says what training
    changed since.
    """

    pads: ClassVar[bool] = False
    """Whether sentences of a batch are padded to one length, so that like lengths should share a batch."""

    classifier: nn.Linear
    dropout: float

    def __init__(self) -> None:
        super().__init__()
        self._base: Weights | None = None
        self._start: dict[str, Tensor] = {}  # the same as tensors, without the tables
        self._begun: dict[str, int] = {}  # each parameter's version when it was last put back to them

    @abstractmethod
    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, d], before the classifier's dropout.

        A generator means training: an encoder with dropout of its own draws it from there.
        """

    def read(self, head: str, batch: Batch, generator: torch.Generator | None) -> Reading:
        """What a bag head makes of a batch in training; the generator draws the dropout, none means none."""
        from fedrel.extractors.heads import HEADS

        return HEADS[head].read(self, batch, generator)

    def probabilities(self, head: str, batch: Batch) -> Tensor:
        """p(r | bag) as a bag head reads it, [B, R]."""
        from fedrel.extractors.heads import HEADS

        return HEADS[head].probabilities(self, batch)

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What training makes small: the cross-entropy, where an example has one relation."""
        return nn.functional.cross_entropy(logits, labels)

    def can_fit(self, head: str) -> bool:
        """Whether `fit` does what training on a bag head's cross-entropy would do."""
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
        head: str,
    ) -> Fitted:
        """Train on a bag head's cross-entropy with plain SGD, an epoch in each of these orders of the bags."""
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
        """Take over all of `weights`, after checking names and shapes."""
        self._base = None  # the same object may hold other numbers by now
        self.begin(weights)
        self._base = None

    @torch.no_grad()
    def begin(self, weights: Weights) -> None:
        """Start a site's work from `weights`.

        The same object as last time (which must not have been written to since) costs what training
        changed; any other is copied whole.
        """
        same, tables = weights is self._base, self._tables
        if not same:
            self._check(weights)
            self._base, self._begun = weights, {}
            self._start = {name: _as_tensor(weights[name]) for name in self._weights if name not in tables}
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
        """What training changes, and so what travels; a frozen parameter is the same everywhere and stays."""
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


def _as_tensor(array: npt.NDArray[np.float32]) -> Tensor:
    """A view where torch allows one: it does not of arrays that must not be written to."""
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
