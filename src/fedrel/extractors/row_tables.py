"""Word tables: a training step reads and writes only the rows of the words in its batch.

A batch of sentences has a few hundred of a vocabulary's hundred thousand words. The gradient of every other row is
zero, so plain SGD only decays it, `row *= 1 - lr * wd`, by the same factor for all. The table therefore stores its
rows divided by one running factor,

    true row = scale * stored row,

and a step costs as much as its own rows: decay multiplies `scale`, and the gradient is added to the rows that have
one. Where a method corrects gradients (`Correction`), every row is also pulled to where it started, `base`, and
pushed by a constant force. Both are the same for all rows, too, and take two more running numbers, those of
`Course`:

    true row = scale * stored row + (rest - scale) * base row + drift * force row.

A row that had no gradient is stored as it is in `base`, which makes this rest * base + drift * force.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.objective import Course
from fedrel.tensors import compiling
from fedrel.tensors.weights import Rows

GAP = 0  # the row between sentences: it is zero and never trained
_SMALLEST_SCALE = 1e-6  # at a smaller scale, stored rows would become too large for float32
_LARGEST = float(np.finfo(np.float32).max)

Floats = npt.NDArray[np.float32]


class RowEmbedding(nn.Module):
    """An embedding table trained by rows. It takes `weight` over, and sets the gap's row to zero.

    Optimisers call `correct`, `gradient` and `descend`; an `Extractor` calls `dense`, `changed` and `restart`.
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
        self.weight = nn.Parameter(weight, requires_grad=False)  # stored rows: read them by `dense` or `at`
        self.register_buffer("touched", torch.zeros(len(weight), dtype=torch.bool), persistent=False)
        self._base: Floats | None = None
        self._begin()

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors of `ids`, with gradients for the rows in use."""
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

    # Training.

    def correct(self, pull: float, own: Rows | None, common: Floats | None) -> None:
        """From here on every gradient gets `pull * (row - base) + own + common`; `restart` ends it."""
        self._course = Course()
        self._pull, self._own, self._common = pull, own, common
        if own is not None:
            self.touched[torch.from_numpy(own.index).long()] = True  # `changed` must list them

    @property
    def base(self) -> Floats:
        """The rows that training started from."""
        assert self._base is not None, "a table is trained from `restart` on"
        return self._base

    def move_to(self, scale: float, course: Course) -> None:
        """Where a kernel's steps have taken the table, beside the stored rows that it changed."""
        self.scale = scale
        if self._course:
            self._course = course

    @property
    def is_corrected(self) -> bool:
        """Whether rows move by more than gradients and decay, and so even where no step uses them."""
        return self._course is not None

    def gradient(self) -> tuple[Tensor, Tensor]:
        """The rows with a gradient since the last step, each once, and their gradients; the gap's is zero."""
        found = [(rows, values.grad) for rows, values in self._pending if values.grad is not None]
        if not found:
            return self.weight.new_empty(0, dtype=torch.int64), self.weight.new_empty(0, self.weight.shape[1])
        if len(found) == 1:
            rows, gradient = found[0]
        else:
            rows, place = torch.unique(torch.cat([rows for rows, _ in found]), return_inverse=True)
            gradient = self.weight.new_zeros(len(rows), self.weight.shape[1])
            gradient.index_add_(0, place, torch.cat([part for _, part in found]))
        gradient[rows == GAP] = 0
        return rows, gradient

    def gradients(self) -> list[Tensor]:
        """The gradients of all forward passes since the last step, themselves: to be scaled in place."""
        return [values.grad for _, values in self._pending if values.grad is not None]

    def drop_gradient(self) -> None:
        """Forget the forward passes since the last step."""
        self._pending.clear()

    def replace_gradient(self, gradient: Tensor) -> None:
        """Give every row of the table a gradient, in place of those of forward passes since the last step."""
        values = torch.empty_like(gradient, requires_grad=True)
        values.grad = gradient
        self._pending = [(torch.arange(len(gradient), device=gradient.device), values)]

    @torch.no_grad()
    def descend(self, rate: float, decay: float, step: tuple[Tensor, Tensor] | None = None) -> None:
        """A step of SGD on the whole table, `p -= rate * (gradient + decay * p)`, at the cost of the rows used.

        With `step`, rows and a direction for each, these take the place of the gradients.
        """
        if self._course:
            self._course.step(rate, decay, self._pull)
        self.scale *= 1 - rate * (decay + self._pull)
        if abs(self.scale) < _SMALLEST_SCALE:
            self._fold()
        for rows, direction in self._directions() if step is None else [step]:
            stored = self.weight.index_select(0, rows)
            stored.add_(direction, alpha=_factor(-rate / self.scale))
            self.weight.index_copy_(0, rows, stored)
            self.touched.index_fill_(0, rows, True)
        self.weight[GAP].zero_()
        self._pending.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of the rows used since the last `descend`."""
        for _, values in self._pending:
            values.grad = None

    # Values.

    @torch.no_grad()
    def at(self, rows: Tensor) -> Tensor:
        """The true values of rows: a copy."""
        values = self.weight.index_select(0, rows)
        if self.scale != 1.0:
            values *= self.scale
        if self._rest != self.scale:
            values.add_(self._look_up(self.base, rows), alpha=_factor(self._rest - self.scale))
        for force in (self._own, self._common):
            if self._course and force is not None:
                values.add_(self._look_up(force, rows), alpha=_factor(self._course.drift))
        return values

    def dense(self) -> Tensor:
        """The whole table as it is now: a copy."""
        return self.at(torch.arange(len(self.weight), device=self.weight.device))

    def changed(self) -> Rows:
        """What training did since `restart`: the rows that it changed, and the factor of all others.

        A common force moves the others too, by `drift` times itself; whoever knows the force can add that.
        """
        if self._has_kernels() and not self._course:
            from fedrel.tensors.array_kernels import changed_rows

            return Rows(*changed_rows(self.weight.numpy(), self.touched.numpy(), self.scale), self.scale)
        index = self._touched_rows()
        values = self.at(index)
        return Rows(index.to(torch.int32).cpu().numpy(), values.cpu().numpy(), self._rest)

    @torch.no_grad()
    def restart(self, base: Floats, *, only_touched: bool) -> None:
        """Start again from `base`. `only_touched`: all rows but the touched ones are those of `base` already."""
        if not only_touched:
            self.weight.copy_(as_tensor(base))
            self.touched.zero_()
        if not only_touched or self._reset_touched(base):
            self.weight[GAP].zero_()
        self._base = base
        self._begin()

    def _reset_touched(self, base: Floats) -> int:
        """Set the touched rows back to those of `base`, and mark them as untouched; returns how many there were."""
        if self._has_kernels():
            from fedrel.tensors.array_kernels import reset_rows

            return reset_rows(self.weight.numpy(), self.touched.numpy(), compiling.read_only(base))
        index = self._touched_rows()
        values = torch.from_numpy(base.take(index.cpu().numpy(), axis=0))
        self.weight.index_copy_(0, index, values.to(self.weight))
        self.touched.zero_()
        return len(index)

    def _begin(self) -> None:
        self.scale = 1.0
        self._course, self._pull, self._own, self._common = None, 0.0, None, None
        self._pending = []

    def _directions(self) -> list[tuple[Tensor, Tensor]]:
        return [(rows, values.grad) for rows, values in self._pending if values.grad is not None]

    @property
    def _rest(self) -> float:
        """The factor by which a row without a gradient has shrunk."""
        return self._course.rest if self._course else self.scale

    def _look_up(self, table: Floats | Rows, rows: Tensor) -> Tensor:
        """Rows of one of the round's constant tables; the gap stays zero, whatever was sent."""
        numbers = rows.cpu().numpy()
        found = table.at(numbers) if isinstance(table, Rows) else table[numbers]
        found[numbers == GAP] = 0
        return torch.from_numpy(found).to(self.weight)

    def _has_kernels(self) -> bool:
        return self.weight.is_cpu and self.weight.dtype is torch.float32 and compiling.has_numba()

    def _touched_rows(self) -> Tensor:
        """The rows that training has changed, ascending."""
        if self.touched.is_cpu:  # numpy lists them ten times as fast as torch
            return torch.from_numpy(np.flatnonzero(self.touched.numpy()))
        return self.touched.nonzero().squeeze(1)

    def _fold(self) -> None:
        """Apply the running factor to what training added to its rows; all others stay those of `base`."""
        self._course = self._course or Course(rest=self.scale)
        index = self._touched_rows()
        base = self._look_up(self.base, index)
        self.weight[index] = torch.lerp(base, self.weight[index], self.scale)
        self.scale = 1.0


class FixedRows(nn.Module):
    """A word table that is read like a `RowEmbedding` and never trained: no optimiser and no message has it."""

    scale: Final = 1.0
    is_corrected: Final = False

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


def _factor(number: float) -> float:
    """A factor of rows. torch refuses one that float32 cannot hold; infinite, it shows as diverged training."""
    return number if abs(number) <= _LARGEST else math.copysign(math.inf, number)


def as_tensor(array: Floats) -> Tensor:
    """The array as a tensor: a view of it where it is writeable, as torch demands, else a copy."""
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)


def flat(x: Tensor) -> np.ndarray[Any, Any]:
    """The numbers of a contiguous tensor in memory order, as kernels read them: of bfloat16, their bits."""
    return (x.view(torch.uint16) if x.dtype is torch.bfloat16 else x).view(-1).numpy()


def word_table(
    size: int, dimension: int, generator: torch.Generator, vectors: Floats | Tensor | None, *, train: bool
) -> RowEmbedding | FixedRows:
    """A new table of `size` words, which begins with `vectors`.

    Words whose vector is zero, and all words where no vectors are given, begin with drawn numbers.
    """
    drawn = torch.randn((size, dimension), generator=generator) / math.sqrt(dimension)
    if vectors is not None:
        given = torch.tensor(np.asarray(vectors))
        if given.shape != drawn.shape:
            raise UserError(
                f"the word vectors are {given.shape[1]} numbers of {given.shape[0]} words, "
                f"expected {dimension} numbers of {size} words",
                hint="set word_dimension to the size of the vectors in the file, or choose another file",
            )
        drawn = torch.where(given.any(dim=1, keepdim=True), given.to(drawn), drawn)
    return RowEmbedding(drawn) if train else FixedRows(drawn)
