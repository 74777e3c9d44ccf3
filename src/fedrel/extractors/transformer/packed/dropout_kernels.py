"""Dropout and residual sums in one pass over memory each, and the exponential function, compiled by numba.

Which numbers are kept follows from a hash of their place and a key, so no mask is stored: the backward pass draws
the same one again. `Mask.kept` has the same hash in PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedrel.tensors.bfloat16_kernels import Floats, Numbers, narrowed, widened
from fedrel.tensors.compiling import inner, kernel

F32, U32 = np.float32, np.uint32


@kernel
def drop(x: Numbers, out: Numbers, first: int, seed: int, stride: int, cut: int) -> None:
    """out = x where dropout keeps a number, else 0, [n]; the numbers stand at `first` and after."""
    for i in range(len(x)):
        out[i] = x[i] if hashed(first + i, seed, stride) >= U32(cut) else x.dtype.type(0)


@kernel
def add_dropped(
    x: Floats, o: Numbers, total: Floats, first: int, seed: int, stride: int, cut: int, scale: float
) -> None:
    """total = x + scale * dropout(o), [n]."""
    factor = F32(scale)
    for i in range(len(x)):
        kept = widened(o[i]) * factor if hashed(first + i, seed, stride) >= U32(cut) else F32(0)
        total[i] = x[i] + kept


@kernel
def dropped(x: Floats, out: Numbers, first: int, seed: int, stride: int, cut: int, scale: float) -> None:
    """out = scale * dropout(x), [n], rounded to the precision of `out`."""
    factor = F32(scale)
    for i in range(len(x)):
        number = x[i] * factor if hashed(first + i, seed, stride) >= U32(cut) else F32(0)
        out[i] = narrowed(number, out)


@kernel
def column_sums(x: Numbers, columns: int, out: Floats) -> None:
    """The sum of each column of a matrix whose rows follow each other in memory."""
    out[:] = F32(0)
    for row in range(len(x) // columns):
        for column in range(columns):
            out[column] += widened(x[row * columns + column])


@inner
def hashed(place: int, seed: int, stride: int) -> np.uint32:
    """A number from 0 to 2^32 - 1 for a place. Every product is cut off at 32 bits, which numba would widen."""
    x = U32(U32(U32(place) * U32(stride)) + U32(seed))
    x = U32(U32(x ^ (x >> U32(16))) * U32(0x7FEB352D))
    x = U32(U32(x ^ (x >> U32(15))) * U32(0x846CA68B))
    return U32(x ^ (x >> U32(16)))


@inner
def raised(x: np.float32) -> np.float32:
    """e^x for x from -87 to 0, and about 0 below, to two units in the last place; NaN stays NaN.

    A polynomial over half a power of two (Cephes' `expf`), which a processor computes for a vector at once.
    """
    x = F32(-87) if x < F32(-87) else x
    power = F32(np.floor(x * F32(1.44269504088896341) + F32(0.5)))
    x = x - power * F32(0.693359375)
    x = x - power * F32(-2.12194440e-4)
    sum_ = F32(1.9875691500e-4) * x + F32(1.3981999507e-3)
    sum_ = sum_ * x + F32(8.3334519073e-3)
    sum_ = sum_ * x + F32(4.1665795894e-2)
    sum_ = sum_ * x + F32(1.6666665459e-1)
    sum_ = sum_ * x + F32(5.0000001201e-1)
    sum_ = sum_ * x * x + x + F32(1)
    return sum_ * _as_float(U32(U32(np.int32(power) + np.int32(127)) << U32(23)))  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def _as_float(_: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.uint32), lambda context, builder, signature, given: builder.bitcast(
        given[0], ir.FloatType()
    )
