"""A word table of which a training step reads and writes only the rows of its batch.

A batch of sentences holds a few hundred of a vocabulary's hundred thousand words. The gradient of every
other row is zero, so plain SGD does one thing to it, `row *= 1 - lr * wd`: the same number for all of
them. The table therefore keeps its rows divided by one running factor,

    true row = scale * stored row,

and a step costs what its own rows cost: decay multiplies `scale`, the gradient is added to its rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.federation.weights import Rows

GAP = 0  # the row between sentences: zero, and never trained
_SMALLEST_SCALE = 1e-6  # below it the stored rows would drift towards the end of float32: fold it in


class RowEmbedding(nn.Module):
    """An embedding table trained by rows. It takes `weight` over, and sets the gap's row to zero.

    `SGD` calls `descend`; an `Extractor` calls `dense`, `changed` and `restart`.
    """

    touched: Tensor  # [n] bool, the rows that training has changed since `restart`

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        weight[GAP] = 0
        self.weight = nn.Parameter(weight, requires_grad=False)  # stored rows: read them through `dense`
        self.scale = 1.0
        self.register_buffer("touched", torch.zeros(len(weight), dtype=torch.bool), persistent=False)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors of `ids`, with gradients for the rows they use."""
        values, inverse = self.distinct(ids)
        return values[inverse]

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, d]; and for each id its place among them.

        With gradients on, the rows are a leaf of the graph, and the next `descend` trains them.
        """
        rows, inverse = torch.unique(ids, return_inverse=True)
        values = self.weight.index_select(0, rows)
        if self.scale != 1.0:
            values *= self.scale
        if torch.is_grad_enabled():
            values.requires_grad_()
            self._pending.append((rows, values))
        return values, inverse

    @torch.no_grad()
    def descend(self, rate: float, decay: float) -> None:
        """A step of SGD on the whole table, `p -= rate * (gradient + decay * p)`, at the cost of the rows used."""
        self.scale *= 1 - rate * decay
        if abs(self.scale) < _SMALLEST_SCALE:
            self._fold()
        for rows, values in self._pending:
            if values.grad is not None:
                stored = self.weight.index_select(0, rows)
                stored.add_(values.grad, alpha=-rate / self.scale)
                self.weight.index_copy_(0, rows, stored)
                self.touched.index_fill_(0, rows, True)
        self.weight[GAP].zero_()
        self._pending.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of the rows used since the last `descend`."""
        for _, values in self._pending:
            values.grad = None

    def dense(self) -> Tensor:
        """The whole table with its decay applied: a copy."""
        return self.weight.detach() * self.scale

    def changed(self) -> Rows:
        """What training did since `restart`: the rows it changed and the factor of all others."""
        index = self._touched_rows()
        values = self.weight.index_select(0, index) * self.scale
        return Rows(index.to(torch.int32).cpu().numpy(), values.cpu().numpy(), self.scale)

    @torch.no_grad()
    def restart(self, base: npt.NDArray[np.float32], *, only_touched: bool) -> None:
        """Start again from `base`. `only_touched`: all rows but the touched ones are `base`'s already."""
        if only_touched:
            index = self._touched_rows()
            self.weight[index] = torch.from_numpy(base[index.cpu().numpy()]).to(self.weight)
        else:
            self.weight.copy_(torch.tensor(base))
        self.weight[GAP] = 0
        self.scale = 1.0
        self.touched.zero_()
        self._pending.clear()

    def _touched_rows(self) -> Tensor:
        """The rows that training has changed, ascending."""
        if self.touched.is_cpu:  # numpy lists them an order of magnitude faster than torch
            return torch.from_numpy(np.flatnonzero(self.touched.numpy()))
        return self.touched.nonzero().squeeze(1)

    def _fold(self) -> None:
        """Apply the running factor to every stored row: a full pass, so rare.

        `restart` must then restore every row, and does, because all count as touched.
        """
        self.weight.mul_(self.scale)
        self.scale = 1.0
        self.touched.fill_(True)
