"""A word table of which a training step reads and writes only the rows of its batch.

A batch of sentences holds a few hundred of a vocabulary's hundred thousand words. The gradient of every
other row is zero, so plain SGD does one thing to it, `row *= 1 - lr * wd`: the same number for all of
them. The table therefore keeps its rows divided by one running factor,

    true row = scale * stored row,

and a step costs what its own rows cost: decay multiplies `scale`, the gradient is added to its rows. Where a
method corrects gradients (`Correction`), every row is also pulled to where it started, `base`, and pushed by a
constant force. Both are the same for all rows, too, and take two running numbers more, those of `Course`:

    true row = scale * stored row + (rest - scale) * base row + drift * force row.

A row without a gradient is stored as `base` has it, which makes this rest * base + drift * force.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.extractors.optim.correction import Course
from fedrel.tensors import kernels
from fedrel.tensors.weights import Rows

GAP = 0  # the row between sentences: zero, and never trained
_SMALLEST_SCALE = 1e-6  # below it the stored rows would drift towards the end of float32: fold it in

Floats = npt.NDArray[np.float32]


class RowEmbedding(nn.Module):
    """An embedding table trained by rows. It takes `weight` over, and sets the gap's row to zero.

    `SGD` calls `correct` and `descend`; an `Extractor` calls `dense`, `changed` and `restart`.
    """

    touched: Tensor  # [n] bool, the rows that training has changed since `restart`
    scale: float
    _course: Course | None  # none: `rest` is `scale`, and there is no force
    _pull: float
    _own: Rows | None
    _common: Floats | None
    _pending: list[tuple[Tensor, Tensor]]  # the rows of forward passes since the last step, with their values

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        weight[GAP] = 0
        self.weight = nn.Parameter(weight, requires_grad=False)  # stored rows: read them through `dense`
        self.register_buffer("touched", torch.zeros(len(weight), dtype=torch.bool), persistent=False)
        self._base: Floats | None = None
        self._begin()

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors of `ids`, with gradients for the rows they use."""
        values, inverse = self.distinct(ids)
        return values[inverse]

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, d]; and for each id its place among them.

        With gradients on, the rows are a leaf of the graph, and the next `descend` trains them.
        """
        rows, inverse = torch.unique(ids, return_inverse=True)
        values = self.at(rows)
        if torch.is_grad_enabled():
            values.requires_grad_()
            self._pending.append((rows, values))
        return values, inverse

    def correct(self, pull: float, own: Rows | None, common: Floats | None) -> None:
        """From here on every gradient gets `pull * (row - base) + own + common`; `restart` ends it."""
        self._course = Course()
        self._pull, self._own, self._common = pull, own, common
        if own is not None:
            self.touched[torch.from_numpy(own.index).long()] = True  # `changed` must list them

    @torch.no_grad()
    def descend(self, rate: float, decay: float) -> None:
        """A step of SGD on the whole table, `p -= rate * (gradient + decay * p)`, at the cost of the rows used."""
        if self._course:
            self._course.step(rate, decay, self._pull)
        self.scale *= 1 - rate * (decay + self._pull)
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

    @torch.no_grad()
    def at(self, rows: Tensor) -> Tensor:
        """The true values of rows: a copy."""
        values = self.weight.index_select(0, rows)
        if self.scale != 1.0:
            values *= self.scale
        if self._rest != self.scale:
            values.add_(self._look_up(self._base, rows), alpha=self._rest - self.scale)
        for force in (self._own, self._common):
            if self._course and force is not None:
                values.add_(self._look_up(force, rows), alpha=self._course.drift)
        return values

    def dense(self) -> Tensor:
        """The whole table as it is now: a copy."""
        return self.at(torch.arange(len(self.weight), device=self.weight.device))

    def changed(self) -> Rows:
        """What training did since `restart`: the rows it changed and the factor of all others.

        A common force moves the others too, by `drift` times itself; who knows the force can add that.
        """
        if self._has_kernels() and not self._course:
            from fedrel.extractors.pcnn.kernels.rows import changed

            return Rows(*changed(self.weight.numpy(), self.touched.numpy(), self.scale), self.scale)
        index = self._touched_rows()
        values = self.at(index)
        return Rows(index.to(torch.int32).cpu().numpy(), values.cpu().numpy(), self._rest)

    @torch.no_grad()
    def restart(self, base: Floats, *, only_touched: bool) -> None:
        """Start again from `base`. `only_touched`: all rows but the touched ones are `base`'s already."""
        if not only_touched:
            self.weight.copy_(torch.tensor(base))
            self.touched.zero_()
        if not only_touched or self._put_back(base):
            self.weight[GAP].zero_()
        self._base = base
        self._begin()

    def _put_back(self, base: Floats) -> int:
        """Let the touched rows be as in `base` again, and untouched: how many these are."""
        if self._has_kernels():
            from fedrel.extractors.pcnn.kernels.rows import put_back

            return put_back(self.weight.numpy(), self.touched.numpy(), base)
        index = self._touched_rows()
        values = torch.from_numpy(base.take(index.cpu().numpy(), axis=0))
        self.weight.index_copy_(0, index, values.to(self.weight))
        self.touched.zero_()
        return len(index)

    def _begin(self) -> None:
        self.scale = 1.0
        self._course, self._pull, self._own, self._common = None, 0.0, None, None
        self._pending = []

    @property
    def _rest(self) -> float:
        """What a row without a gradient is by now, in parts of what it was."""
        return self._course.rest if self._course else self.scale

    def _look_up(self, table: Floats | Rows | None, rows: Tensor) -> Tensor:
        """Rows of one of the round's constant tables; the gap stays zero, whatever was sent."""
        assert table is not None, "a table is trained from `restart` on"
        numbers = rows.cpu().numpy()
        found = table.at(numbers) if isinstance(table, Rows) else table[numbers]
        found[numbers == GAP] = 0
        return torch.from_numpy(found).to(self.weight)

    def _has_kernels(self) -> bool:
        return self.weight.is_cpu and self.weight.dtype is torch.float32 and kernels.available()

    def _touched_rows(self) -> Tensor:
        """The rows that training has changed, ascending."""
        if self.touched.is_cpu:  # numpy lists them an order of magnitude faster than torch
            return torch.from_numpy(np.flatnonzero(self.touched.numpy()))
        return self.touched.nonzero().squeeze(1)

    def _fold(self) -> None:
        """Apply the running factor to what training added to its rows: the others are `base`'s and stay so."""
        self._course = self._course or Course(rest=self.scale)
        index = self._touched_rows()
        base = self._look_up(self._base, index)
        self.weight[index] = torch.lerp(base, self.weight[index], self.scale)
        self.scale = 1.0


class FixedRows(nn.Module):
    """A word table that is read like a `RowEmbedding` and never trained: no optimiser and no message knows it."""

    scale: Final = 1.0

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        weight[GAP] = 0
        self.weight = nn.Parameter(weight, requires_grad=False)

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, d]; and for each id its place among them."""
        rows, inverse = torch.unique(ids, return_inverse=True)
        return self.at(rows), inverse

    def at(self, rows: Tensor) -> Tensor:
        """The values of rows: a copy."""
        return self.weight.index_select(0, rows)

    def dense(self) -> Tensor:
        """The whole table: a copy."""
        return self.weight.detach().clone()
