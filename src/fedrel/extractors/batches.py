"""Batches: what every extractor reads, how they are gathered from a corpus, and which bags share one.

torch is imported where it is used, so that this module is light.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import SCORED_AT_ONCE, Bags

if TYPE_CHECKING:
    import torch


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """`S` sentences of `T` tokens in all, in `B` bags.

    In a batch of single sentences, each is a bag of its own.
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
        import torch

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
        """The fields with one entry a sentence that `take` needs only to index."""
        others = {"words", "starts", "bags", "labels", "rows"}
        return [field.name for field in fields(cls) if field.name not in others]


@dataclass(frozen=True, slots=True)
class PieceBatch(Batch):
    """Sentences as word pieces; an entity may have several."""

    head_end: torch.Tensor  # [S] int64, the piece after the head's last
    tail_end: torch.Tensor  # [S] int64, likewise the tail's

    def runs(self, *, first: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The pieces of both entities, sentence after sentence, [Q]; and of which run each one is, [Q].

        A sentence has a run for its head and one for its tail; before them, with `first`, one for its first piece.
        """
        import torch

        start, nothing = self.starts[:-1], torch.zeros_like(self.head)
        spans = [(nothing, nothing + 1)] * first + [(self.head, self.head_end), (self.tail, self.tail_end)]
        begin = torch.stack([start + one for one, _ in spans], 1).view(-1)
        sizes = torch.stack([end - one for one, end in spans], 1).view(-1)
        run = torch.repeat_interleave(sizes)
        within = torch.arange(len(run), device=run.device) - (sizes.cumsum(0) - sizes)[run]
        return begin[run] + within, run


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


def shuffled(count: int, size: int, generator: np.random.Generator) -> Iterator[Ints]:
    """One epoch: every one of `count` bags in one batch of `size`, at random."""
    order = generator.permutation(count)
    return (order[begin : begin + size] for begin in range(0, count, size))


def tensor(array: npt.NDArray[np.integer[Any]], device: str) -> torch.Tensor:
    """Integers as torch indexes with them."""
    import torch

    made = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    return made if device == "cpu" else made.to(device)
