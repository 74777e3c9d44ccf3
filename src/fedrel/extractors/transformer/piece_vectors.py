"""The vectors of an encoder's word pieces and markers: trained by rows, or left as they are.

A batch uses a few hundred of a vocabulary's thirty thousand rows. As with PCNN's words, only those are read,
trained and sent (`RowEmbedding`). The whole table is a third of a small encoder's weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrel.extractors.row_tables import RowEmbedding


class TrainedWords(RowEmbedding):
    """All rows are trained."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(
            F.pad(table, (0, 0, 1, 0))
        )  # the gap is a row of its own, since piece 0 has a vector

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, e]; and for each id its place among them."""
        return super().distinct(ids + 1)

    def table(self) -> Tensor:
        """The vector of every piece: a copy."""
        return self.dense()[1:]


class FrozenWords(nn.Module):
    """No row is trained, or those of the markers alone."""

    slots: Tensor  # [V], which marker a piece is, or -1

    def __init__(self, table: Tensor, markers: Sequence[int], *, train_markers: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(table, requires_grad=False)
        rows = torch.tensor(markers, dtype=torch.int64)
        self.markers = nn.Parameter(table[rows].clone()) if train_markers and len(markers) else None
        slots = torch.full((len(table),), -1).index_copy_(0, rows, torch.arange(len(rows)))
        self.register_buffer("slots", slots, persistent=False)

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, e]; and for each id its place among them."""
        rows, inverse = torch.unique(ids, return_inverse=True)
        values = self.weight.index_select(0, rows)
        if self.markers is not None:
            slots = self.slots[rows]
            used = (slots >= 0).nonzero().squeeze(1)
            values = values.index_copy(0, used, self.markers[slots[used]])
        return values, inverse

    def table(self) -> Tensor:
        """The vector of every piece: a copy."""
        table = self.weight.detach().clone()
        if self.markers is not None:
            used = (self.slots >= 0).nonzero().squeeze(1)
            table[used] = self.markers.detach()[self.slots[used]]
        return table


def with_markers(table: Tensor, fresh: Sequence[int], generator: torch.Generator) -> Tensor:
    """A vocabulary's vectors, with new ones for markers that it did not have.

    These are drawn with each dimension's mean and standard deviation over the vocabulary, so that the layers above
    can work with them even where they are never trained.
    """
    table = F.pad(table, (0, 0, 0, max([0, *(row + 1 - len(table) for row in fresh)])))
    if fresh:
        known = table[: min(fresh)]
        drawn = torch.randn((len(fresh), table.shape[1]), generator=generator)
        table[list(fresh)] = known.mean(0) + known.std(0) * drawn
    return table
