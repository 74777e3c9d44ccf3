"""Optimisers of local training, at the cost of the weights that a batch uses: SGD and AdamW.

AdamW (Loshchilov & Hutter 2019): a row of a word table that has had no gradient yet has moments of zero, so AdamW
only decays it: by the same factor for all such rows, which `RowEmbedding` keeps as one number. Moments are kept
for the rows that have had a gradient since the optimiser was made, which happens once a round and site. Those are
updated in every step, as AdamW does whether or not a batch has them. The result is that of AdamW on the whole
table. Weights whose matrix products read copies of them in bfloat16 are renewed together with these, by a kernel
that takes their gradients in bfloat16, too: a third less memory is read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fedrel.extractors.base import Copies, Extractor
from fedrel.extractors.objective import Correction, Course
from fedrel.extractors.row_tables import RowEmbedding, flat
from fedrel.tensors import compiling
from fedrel.tensors.machine import in_parts
from fedrel.tensors.weights import Rows

if TYPE_CHECKING:
    from fedrel.config.schema import Training

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Optimiser(Protocol):
    """Takes steps by gradients."""

    lr: float

    def step(self) -> None:
        """Take a step by the gradients of the last backward pass, and clear them."""

    def zero_grad(self) -> None:
        """Drop gradients without using them."""


def optimiser(
    extractor: Extractor, training: Training, round_: int, steps: int, correction: Correction | None = None
) -> Optimiser:
    """An optimiser for one round of `steps` local steps, whose gradients get `correction` added."""
    rate, decay = training.learning_rate_in(round_), training.weight_decay
    head = (training.head_learning_rate or training.learning_rate) / training.learning_rate
    if training.clip is None and not training.follows_run:
        if training.optimiser == "sgd":
            return SGD(extractor, rate, decay, correction)
        return AdamW(extractor, rate, decay, correction, head=head)
    made: _GuidedSGD | _GuidedAdamW = (
        _GuidedSGD(extractor, rate, decay, correction)
        if training.optimiser == "sgd"
        else _GuidedAdamW(extractor, rate, decay, correction, head=head)
    )
    factor = partial(training.rate_factor, round_, steps=steps)
    made.guide = Guide(extractor, lambda step: rate * factor(step), training.clip)
    return made


class Guide:
    """Sets the learning rate of each step, `rate_of` its number from 1, and clips its gradient.

    The norm that is limited is that of the batch's gradient over all weights, word tables' rows included, before
    decay and corrections.
    """

    def __init__(self, extractor: Extractor, rate_of: Callable[[int], float], clip: float | None) -> None:
        self._rate_of, self._clip, self._steps = rate_of, clip, 0
        self._dense = [weight for weight in extractor.parameters() if weight.requires_grad]
        self._tables = [module for module in extractor.modules() if isinstance(module, RowEmbedding)]

    def rate(self) -> float:
        """The learning rate of the next step."""
        self._steps += 1
        return self._rate_of(self._steps)

    @torch.no_grad()
    def clip(self) -> None:
        """Scale the gradient down to the largest norm allowed."""
        if self._clip is None:
            return
        dense = [weight.grad for weight in self._dense if weight.grad is not None]
        found = norms([*dense, *(table.gradient()[1] for table in self._tables)])
        norm = torch.linalg.vector_norm(torch.stack(found)) if found else 0.0
        if norm > self._clip:
            gradients = [*dense, *(one for table in self._tables for one in table.gradients())]
            torch._foreach_mul_(gradients, self._clip / float(norm))


class SGD:
    """`p -= lr * (gradient + weight_decay * p + correction)` for every parameter, word tables by rows.

    It must be made at the start of a round: a correction pulls to the weights that it finds then.
    """

    def __init__(
        self, extractor: Extractor, lr: float, weight_decay: float = 0.0, correction: Correction | None = None
    ) -> None:
        correction = correction or Correction()
        self.lr, self.weight_decay, self._pull = lr, weight_decay, correction.pull
        self._course = Course()
        dense = {name: weight for name, weight in extractor.named_parameters() if weight.requires_grad}
        self._dense: list[Tensor] = list(dense.values())
        self._constants = constants(correction, dense)
        self._tables: list[RowEmbedding] = []
        for name, module in extractor.named_modules():
            if isinstance(module, RowEmbedding):
                self._tables.append(module)
                if correction:
                    own = correction.own.get(f"{name}.weight")
                    assert not isinstance(own, np.ndarray), f"{name} is a table of rows"
                    module.correct(correction.pull, own, correction.common.get(f"{name}.weight"))

    @torch.no_grad()
    def step(self) -> None:
        """Take a step by the gradients of the last backward pass, and clear them."""
        self._course.step(self.lr, self.weight_decay, self._pull)
        torch._foreach_mul_(self._dense, 1 - self.lr * (self.weight_decay + self._pull))
        if self._constants:
            torch._foreach_add_(self._dense, self._constants, alpha=-self.lr)
        moving = [(weight, weight.grad) for weight in self._dense if weight.grad is not None]
        if moving:
            weights, gradients = zip(*moving, strict=True)
            torch._foreach_add_(weights, gradients, alpha=-self.lr)
        for table in self._tables:
            table.descend(self.lr, self.weight_decay)
        self.zero_grad()

    @property
    def path(self) -> float:
        """How far the steps so far took a weight for each unit of a constant force: the sum of the learning
        rates, each faded by the decay and the pull of the steps after it."""
        return -self._course.drift

    def zero_grad(self) -> None:
        """Drop gradients without using them; a forward pass that waits for its backward pass still counts."""
        for weight in self._dense:
            weight.grad = None
        for table in self._tables:
            table.zero_grad()


def constants(correction: Correction, start: Mapping[str, Tensor]) -> list[Tensor]:
    """Of each dense weight, what its correction has beside `pull * weight`: nothing where nothing is corrected."""
    if not correction:
        return []
    found = []
    for name, weight in start.items():
        constant = -correction.pull * weight.detach()
        for force in (correction.own.get(name), correction.common.get(name)):
            if force is not None:
                assert not isinstance(force, Rows), f"{name} is no table of rows"
                constant += torch.tensor(force).to(constant)
        found.append(constant)
    return found


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
        self._copied = _Copied(extractor.copies())
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
        self._copied.step(self.lr, self.weight_decay)
        self._inner.step()  # of the weights that still have a gradient
        torch.autograd.graph.increment_version(self._dense)  # neither kernels nor a fused step do that
        self._copied.renewed()
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
            weight.grad = part if weight.grad is None else weight.grad + part


def norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The norm of each gradient, in float32 at least."""
    return [
        torch.linalg.vector_norm(one, dtype=torch.promote_types(one.dtype, torch.float32))
        for one in gradients
    ]


class _GuidedSGD(SGD):
    guide: Guide

    def step(self) -> None:
        """A step at its own learning rate, by the clipped gradient."""
        self.lr = self.guide.rate()
        self.guide.clip()
        super().step()


class _GuidedAdamW(AdamW):
    guide: Guide

    def step(self) -> None:
        """A step at its own learning rate, by the clipped gradient."""
        self.lr = self.guide.rate()
        self.guide.clip()
        super().step()


class _Copied:
    """AdamW for the weights that have a copy in bfloat16: a kernel renews both, by gradients of any precision.

    Nothing where there are no such copies, or no kernels.
    """

    def __init__(self, copies: Copies | None) -> None:
        found = copies.of if copies and compiling.has_numba() else {}
        self._weights = [weight for weight in found if weight.requires_grad and weight.is_cpu]
        self.renewed = copies.renewed if copies and self._weights else lambda: None
        own = [(flat(weight.detach()), flat(found[weight])) for weight in self._weights]
        self._arrays = [(*both, np.empty_like(both[0]), np.empty_like(both[0])) for both in own]
        self._steps = [0] * len(own)

    def step(self, rate: float, decay: float) -> None:
        """Renew the weights that have a gradient, and clear it; two cores may share the work."""
        half = len(self._weights) // 2
        halves = (range(half), range(half, len(self._weights)))
        in_parts([partial(self._renew, some, rate, decay) for some in halves if some])

    def _renew(self, some: range, rate: float, decay: float) -> None:
        from fedrel.tensors.bfloat16_kernels import adamw

        for place in some:
            gradient, self._weights[place].grad = self._weights[place].grad, None
            if gradient is not None:
                self._steps[place] += 1
                arrays = (*self._arrays[place], flat(gradient.contiguous()))
                adamw(*arrays, rate, decay, *BETAS, EPSILON, self._steps[place])


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
