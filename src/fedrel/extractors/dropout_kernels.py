"""Dropout and residual sums in one pass over memory each, compiled by numba.

Which numbers are kept follows from a hash of their place and a key, so no mask is stored: the backward pass draws
the same one again. `hashed_dropout.kept` has the same hash in PyTorch.

numba has no bfloat16. Its numbers come as uint16, which are the upper halves of float32's bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedrel.tensors.compiling import inner, kernel

Halves = npt.NDArray[np.uint16]  # bfloat16
Floats = npt.NDArray[np.float32]
U32 = np.uint32


@kernel
def drop(x: Any, out: Any, first: int, seed: int, stride: int, cut: int) -> None:
    """out = x where dropout keeps a number, else 0; numbers of any kind, [n], that stand at `first` and after."""
    for i in range(len(x)):
        out[i] = x[i] if hashed(first + i, seed, stride) >= U32(cut) else x.dtype.type(0)


@kernel
def add_dropped_halves(
    x: Floats, o: Halves, total: Floats, first: int, seed: int, stride: int, cut: int, scale: float
) -> None:
    """total = x + scale * dropout(o), [n]."""
    factor = np.float32(scale)
    for i in range(len(x)):
        kept = widened(o[i]) * factor if hashed(first + i, seed, stride) >= U32(cut) else np.float32(0)
        total[i] = x[i] + kept


@kernel
def add_dropped(
    x: Floats, o: Floats, total: Floats, first: int, seed: int, stride: int, cut: int, scale: float
) -> None:
    """total = x + scale * dropout(o), [n]."""
    factor = np.float32(scale)
    for i in range(len(x)):
        kept = o[i] * factor if hashed(first + i, seed, stride) >= U32(cut) else np.float32(0)
        total[i] = x[i] + kept


@kernel
def dropped_halves(
    x: Floats, out: Halves, first: int, seed: int, stride: int, cut: int, scale: float
) -> None:
    """out = scale * dropout(x), rounded to bfloat16, [n]."""
    factor = np.float32(scale)
    for i in range(len(x)):
        out[i] = narrowed(x[i] * factor if hashed(first + i, seed, stride) >= U32(cut) else np.float32(0))


@kernel
def dropped(x: Floats, out: Floats, first: int, seed: int, stride: int, cut: int, scale: float) -> None:
    """out = scale * dropout(x), [n]."""
    factor = np.float32(scale)
    for i in range(len(x)):
        out[i] = x[i] * factor if hashed(first + i, seed, stride) >= U32(cut) else np.float32(0)


@inner
def hashed(place: int, seed: int, stride: int) -> np.uint32:
    """A number from 0 to 2^32 - 1 for a place. Every product is cut off at 32 bits, which numba would widen."""
    x = U32(U32(U32(place) * U32(stride)) + U32(seed))
    x = U32(U32(x ^ (x >> U32(16))) * U32(0x7FEB352D))
    x = U32(U32(x ^ (x >> U32(15))) * U32(0x846CA68B))
    return U32(x ^ (x >> U32(16)))


@inner
def widened(half: np.uint16) -> np.float32:
    """A bfloat16 as float32."""
    return _as_float(U32(U32(half) << U32(16)))  # type: ignore[no-any-return]


@inner
def narrowed(number: np.float32) -> np.uint16:
    """A float32 rounded to the nearest bfloat16, to the even one of two; NaN stays NaN."""
    bits = _as_bits(number)
    rounded = U32(bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1)))
    return np.uint16((rounded if number == number else U32(0x7FC00000)) >> U32(16))  # noqa: PLR0124


@intrinsic  # type: ignore[untyped-decorator]
def _as_float(_: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.uint32), lambda context, builder, signature, given: builder.bitcast(
        given[0], ir.FloatType()
    )


@intrinsic  # type: ignore[untyped-decorator]
def _as_bits(_: Any, number: Any) -> Any:
    """The bits of a float32."""
    return types.uint32(types.float32), lambda context, builder, signature, given: builder.bitcast(
        given[0], ir.IntType(32)
    )
