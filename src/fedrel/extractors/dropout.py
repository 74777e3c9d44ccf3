"""Dropout that draws from a given generator, so that the same seed drops the same numbers everywhere."""

from __future__ import annotations

import torch
from torch import Tensor

_CHANCES = 1 << 24  # numbers drawn for units have so many values


def dropout(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Set each number to zero with probability `p`, divide the rest by `1 - p`; without a generator, do nothing."""
    if generator is None or p == 0:
        return x
    kept = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device).ge_(p)
    return x * kept.div_(1 - p)


def drop_units(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """The dropout before a classifier, [n, d]: like `dropout`, but with masks that kernels can draw as well.

    It takes one number a step from the generator, whatever the shape. So a method that trains by kernels and one
    that trains step by step drop the same units, and only the methods differ.
    """
    if generator is None or p == 0:
        return x
    seed = int(step_seeds(generator, 1))
    return x * units_kept(seed, x.shape[0], x.shape[1], p, x.device).to(x.dtype).div_(1 - p)


def step_seeds(generator: torch.Generator, steps: int) -> Tensor:
    """The next seeds of masks, one for each step; drawn together they are the same as one by one."""
    return torch.randint(1 << 62, (steps,), generator=generator, device=generator.device)


def units_kept(seed: int, rows: int, units: int, rate: float, device: torch.device | str = "cpu") -> Tensor:
    """Which units of which rows a step keeps, [rows, units], by a hash of the seed, the row and the unit.

    `draw_kept` of PCNN's kernels draws the same. torch has no unsigned integers: products wrap around all the same,
    and `_shifted` shifts as if there were no sign.
    """
    key = _scramble_long(torch.arange(rows, device=device) + seed)
    low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
    number = torch.arange(units, dtype=torch.int32, device=device) + low[:, None]
    number = _scramble(_scramble(number).bitwise_xor_(high[:, None]))
    return _shifted(number, 8, 32) >= int(rate * _CHANCES)


def _scramble_long(x: Tensor) -> Tensor:
    """SplitMix64's output function (Steele et al. 2014)."""
    x = x - 0x61C8864680B583EB
    x = (x ^ _shifted(x, 30, 64)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27, 64)) * -0x6B2FB644ECCEEE15
    return x ^ _shifted(x, 31, 64)


def _scramble(x: Tensor) -> Tensor:
    """The finaliser of MurmurHash3: every bit of the result depends on every bit of x."""
    x = (x ^ _shifted(x, 16, 32)) * -0x7A143595
    x = (x ^ _shifted(x, 13, 32)) * -0x3D4D51CB
    return x ^ _shifted(x, 16, 32)


def _shifted(x: Tensor, by: int, bits: int) -> Tensor:
    """x >> by, filled up with zeros, as for unsigned numbers."""
    return (x >> by) & ((1 << (bits - by)) - 1)
