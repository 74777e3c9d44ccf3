"""A corpus as an extractor reads it, and which bags go into a batch together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import SCORED_AT_ONCE, Bags

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.batches import Batch


Ints = npt.NDArray[np.int64]


def shuffled(
    count: int, size: int, generator: np.random.Generator, lengths: Ints | None = None
) -> Iterator[Ints]:
    """One epoch: every one of `count` bags in one batch of `size`, at random.

    With `lengths`, for a model that pads, bags of similar length share a batch, so that almost nothing is padded;
    the order of equal ones and of the batches is random.
    """
    order = generator.permutation(count)
    if lengths is not None:
        order = order[np.argsort(lengths[order], kind="stable")]
    batches = [order[begin : begin + size] for begin in range(0, count, size)]
    if lengths is not None:
        batches = [batches[which] for which in generator.permutation(len(batches))]
    yield from batches


class Inputs(ABC):
    """A corpus as one kind of extractor reads it: it gathers bags of rows into batches."""

    at_once: ClassVar[int] = SCORED_AT_ONCE
    """How many rows to read at once where nothing is trained."""

    @abstractmethod
    def lengths(self, rows: Ints) -> Ints:
        """How many tokens each row has."""

    @abstractmethod
    def batch(self, bags: Bags, device: str = "cpu") -> Batch:
        """The sentences of these bags."""

    @abstractmethod
    def save(self, folder: Path) -> dict[str, Any]:
        """Leave for other processes of this machine what `ExtractorKind.open_inputs` finds again.

        What is returned, as JSON, is handed to it as well.
        """


def tensor(array: npt.NDArray[np.integer[Any]], device: str) -> torch.Tensor:
    """Integers as torch indexes with them."""
    import torch

    made = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    return made if device == "cpu" else made.to(device)
