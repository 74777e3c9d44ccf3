"""Dropout whose masks are not stored: a hash of a number's place and a key tells whether the number is kept.

The backward pass computes the mask again. Where numba is installed, kernels do it in the pass over memory in which
the numbers are used; else, and on other devices, PyTorch does. Both keep the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedrel.extractors.row_tables import flat
from fedrel.tensors import compiling

_WORD = (1 << 32) - 1
_LONG = (1 << 64) - 1


class Mask(NamedTuple):
    """Which of the numbers that stand at `first` and after it are kept, at a rate of dropout."""

    key: int  # 64 bits
    rate: float
    first: int = 0

    @property
    def scale(self) -> float:
        """What a kept number is multiplied by."""
        return 1 / (1 - self.rate)

    @property
    def words(self) -> tuple[int, int, int, int]:
        """What kernels take: the first place, the hash's offset and odd stride, and the least hash that is kept."""
        return self.first, self.key & _WORD, self.key >> 32 | 1, int(self.rate * (1 << 32))

    def kept(self, shape: torch.Size, device: torch.device | str = "cpu") -> Tensor:
        """The mask, as kernels compute it."""
        first, seed, stride, cut = self.words
        x = (torch.arange(first, first + shape.numel(), device=device) * stride + seed) & _WORD
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
        x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
        return ((x ^ (x >> 16)) >= cut).view(shape)


def key(seed: int, *purpose: int) -> int:
    """64 bits for one purpose in a pass: SplitMix64's steps over the seed and the purpose."""
    mixed = seed
    for number in purpose:
        mixed = (mixed + 0x9E3779B97F4A7C15 * (number + 1)) & _LONG
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _LONG
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _LONG
        mixed ^= mixed >> 31
    return mixed


def drop(x: Tensor, mask: Mask | None) -> Tensor:
    """x where the mask keeps a number, else 0; not multiplied by anything."""
    if mask is None:
        return x
    if not has_kernels(x):
        return x * mask.kept(x.shape, x.device)
    from fedrel.extractors.transformer.packed import dropout_kernels

    x = x.contiguous()
    out = torch.empty_like(x)
    dropout_kernels.drop(flat(x), flat(out), *mask.words)
    return out


def add_dropped(x: Tensor, o: Tensor, mask: Mask | None) -> Tensor:
    """x + dropout(o); `o` may be less precise than x."""
    if mask is None:
        return x + o
    if not has_kernels(x):
        return x + o * mask.kept(o.shape, o.device) * mask.scale
    from fedrel.extractors.transformer.packed import dropout_kernels

    total, x, o = torch.empty_like(x), x.contiguous(), o.contiguous()
    dropout_kernels.add_dropped(flat(x), flat(o), flat(total), *mask.words, mask.scale)
    return total


def dropped(x: Tensor, mask: Mask | None, dtype: torch.dtype) -> Tensor:
    """dropout(x) in some precision: also the gradient of what `add_dropped` adds."""
    if mask is None:
        return x.to(dtype)
    if not has_kernels(x):
        return (x * mask.kept(x.shape, x.device) * mask.scale).to(dtype)
    from fedrel.extractors.transformer.packed import dropout_kernels

    out, x = torch.empty(x.shape, dtype=dtype), x.contiguous()
    dropout_kernels.dropped(flat(x), flat(out), *mask.words, mask.scale)
    return out


def column_sums(x: Tensor) -> Tensor:
    """The sum of the rows of a matrix, in float32 at least."""
    if not has_kernels(x):
        return x.sum(0, dtype=torch.float32 if x.dtype is torch.bfloat16 else None)
    from fedrel.extractors.transformer.packed import dropout_kernels

    out, x = torch.empty(x.shape[1]), x.contiguous()
    dropout_kernels.column_sums(flat(x), x.shape[1], flat(out))
    return out


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can read this tensor."""
    return x.is_cpu and x.dtype in (torch.float32, torch.bfloat16) and compiling.has_numba()


class HashedDropout(TorchFunctionMode):
    """A context in which every `F.dropout` is hashed: the seed and how many came before decide the mask."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed, self._count = seed, 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        self._count += 1
        out: Tensor = _Dropped.apply(x, Mask(key(self._seed, self._count), p))  # type: ignore[no-untyped-call]
        return out


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        return dropped(x, mask, x.dtype) if x.dtype is not torch.bfloat16 else drop(x, mask) * mask.scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        if gradient.dtype is torch.bfloat16:
            return drop(gradient, ctx.mask) * ctx.mask.scale, None
        return dropped(gradient, ctx.mask, gradient.dtype), None
