"""Sentences as word pieces in a batch, and which pieces a pooling reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrel.extractors.batches import Batch


@dataclass(frozen=True, slots=True)
class PieceBatch(Batch):
    """Sentences as word pieces; an entity may have several."""

    head_end: torch.Tensor  # [S] int64, the piece after the head's last
    tail_end: torch.Tensor  # [S] int64, likewise the tail's

    def runs(self, *, first: bool) -> tuple[Tensor, Tensor]:
        """The pieces of both entities, sentence after sentence, [Q]; and of which run each one is, [Q].

        A sentence has a run for its head and one for its tail; before them, with `first`, one for its first piece.
        """
        start, nothing = self.starts[:-1], torch.zeros_like(self.head)
        spans = [(nothing, nothing + 1)] * first + [(self.head, self.head_end), (self.tail, self.tail_end)]
        begin = torch.stack([start + one for one, _ in spans], 1).view(-1)
        sizes = torch.stack([end - one for one, end in spans], 1).view(-1)
        run = torch.repeat_interleave(sizes)
        within = torch.arange(len(run), device=run.device) - (sizes.cumsum(0) - sizes)[run]
        return begin[run] + within, run
