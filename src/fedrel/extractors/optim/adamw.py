"""AdamW (Loshchilov & Hutter 2019), at the cost of the weights that training has reached.

A row of a word table that has had no gradient yet has moments of zero, so AdamW only decays it: by the same factor
for all such rows, which `RowEmbedding` keeps as one number. Moments are kept for the rows that have had a gradient
since the optimiser was made, which happens once a round and site. Those are updated in every step, as AdamW does
whether or not a batch has them. The result is that of AdamW on the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedrel.extractors.base import Extractor
from fedrel.extractors.objective import Correction
from fedrel.extractors.optim.sgd import constants
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.weights import Rows

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW:
    """AdamW with the usual moments for every weight, word tables by rows.

    A correction is added to the gradients. Its pull acts on the rows of a table that have had a gradient or a
    force; all others only decay. New layers learn at `head` times the learning rate.
    """

    def __init__(
        self,
        extractor: Extractor,
        lr: float,
        weight_decay: float = 0.0,
        correction: Correction | None = None,
        *,
        head: float = 1.0,
    ) -> None:
        correction = correction or Correction()
        assert not correction.common, "a force on all rows would move all rows"
        dense = {name: weight for name, weight in extractor.named_parameters() if weight.requires_grad}
        self.weight_decay, self._pull = weight_decay, correction.pull
        self._dense: list[Tensor] = list(dense.values())
        self._forces = constants(Correction(own=correction.own), dense)
        self._starts = [weight.detach().clone() for weight in self._dense] if correction.pull else []
        above = [weight for name, weight in dense.items() if head != 1 and extractor.is_new(name)]
        below = [weight for name, weight in dense.items() if head == 1 or not extractor.is_new(name)]
        self._groups = [(own, factor) for own, factor in ((below, 1.0), (above, head)) if own]
        self._inner = torch.optim.AdamW(
            [{"params": own, "lr": lr * factor} for own, factor in self._groups],
            betas=BETAS,
            eps=EPSILON,
            weight_decay=weight_decay,
            fused=True,
        )
        self._lr = lr
        self._tables = [
            _Table(module, correction.pull, correction.own.get(f"{name}.weight"))
            for name, module in extractor.named_modules()
            if isinstance(module, RowEmbedding)
        ]

    @property
    def lr(self) -> float:
        """The learning rate of the next step; that of new layers is `head` times as high."""
        return self._lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._lr = rate
        for group, (_, factor) in zip(self._inner.param_groups, self._groups, strict=True):
            group["lr"] = rate * factor

    @torch.no_grad()
    def step(self) -> None:
        """Go down the gradients of the last backward pass, and clear them."""
        if self._pull:  # must be exactly zero at the start: AdamW makes a full step of any other number
            start = zip(self._dense, self._starts, strict=True)
            self._add(self._pull * (weight - begun) for weight, begun in start)
        if self._forces:
            self._add(self._forces)
        self._inner.step()
        torch.autograd.graph.increment_version(self._dense)  # a fused step does not do that
        for table in self._tables:
            table.step(self.lr, self.weight_decay)
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drop gradients without using them; a forward pass that waits for its backward pass still counts."""
        for weight in self._dense:
            weight.grad = None
        for table in self._tables:
            table.rows.zero_grad()

    def _add(self, parts: Iterable[Tensor]) -> None:
        for weight, part in zip(self._dense, parts, strict=True):
            weight.grad = part if weight.grad is None else weight.grad.add_(part)


class _Table:
    """The moments of the rows of a table that have had a gradient."""

    def __init__(self, rows: RowEmbedding, pull: float, own: object) -> None:
        self.rows, self._pull, self._steps = rows, pull, 0
        weight = rows.weight
        self._slot = torch.full(
            (len(weight),), -1, device=weight.device
        )  # of each row; -1 until it is reached
        self._reached = self._slot[:0]
        self._start = self._mean = self._square = weight.detach()[:0]
        self._own: tuple[Tensor, Tensor] | None = None
        if own is not None:
            assert isinstance(own, Rows), "a table of rows"
            index = torch.from_numpy(own.index.astype(np.int64)).to(weight.device)
            self._own = index, torch.from_numpy(own.values).to(weight)
            self._reach(index)

    def step(self, rate: float, decay: float) -> None:
        """One step of the rows that have had a gradient, and the decay of all others."""
        self._steps += 1
        rows, some = self.rows.gradient()
        self._reach(rows)
        gradient = torch.zeros_like(self._mean).index_copy_(0, self._slot[rows], some)
        if self._pull:
            gradient.add_(self.rows.at(self._reached) - self._start, alpha=self._pull)
        if self._own is not None:
            gradient.index_add_(0, self._slot[self._own[0]], self._own[1])
        first, second = BETAS
        self._mean.lerp_(gradient, 1 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (self._square / (1 - second**self._steps)).sqrt_().add_(EPSILON)
        direction = torch.div(self._mean, spread, out=spread).div_(1 - first**self._steps)
        self.rows.descend(rate, decay, (self._reached, direction))

    def _reach(self, rows: Tensor) -> None:
        """Add rows that are new, with moments of zero."""
        new = rows[self._slot[rows] < 0]
        if not len(new):
            return
        known = len(self._reached)
        self._slot[new] = torch.arange(known, known + len(new), device=new.device)
        self._reached = torch.cat([self._reached, new])
        nothing = self._mean.new_zeros(len(new), self._mean.shape[1])
        self._mean, self._square = torch.cat([self._mean, nothing]), torch.cat([self._square, nothing])
        if self._pull:
            self._start = torch.cat([self._start, self.rows.at(new)])
