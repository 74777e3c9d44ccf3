"""A batch: some sentences of a corpus laid end to end without padding, and the bags that they form."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch


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
