"""bfloat16 in kernels: reading and rounding its numbers, and AdamW's step for weights that have a copy in it.

numba has no bfloat16. Its numbers come as uint16, which are the upper halves of float32's bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedrel.tensors.compiling import kernel

Numbers = npt.NDArray[Any]  # float32, or uint16 for bfloat16
Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]
F32 = np.float32


@intrinsic  # type: ignore[untyped-decorator]
def widened(_: Any, number: Any) -> Any:
    """A number of either precision as float32."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if number == types.float32:
            return given[0]
        bits = builder.shl(builder.zext(given[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(number), generate


@intrinsic  # type: ignore[untyped-decorator]
def narrowed(_: Any, number: Any, like: Any) -> Any:
    """A float32 in the precision of an array: rounded to the nearest bfloat16, to the even one of two."""
    word = ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if like.dtype == types.float32:
            return given[0]
        half, bits = ir.Constant(word, 16), builder.bitcast(given[0], word)
        odd = builder.and_(builder.lshr(bits, half), ir.Constant(word, 1))
        rounded = builder.add(builder.add(bits, ir.Constant(word, 0x7FFF)), odd)
        nothing = builder.fcmp_unordered("uno", given[0], given[0])  # NaN stays NaN
        chosen = builder.select(nothing, ir.Constant(word, 0x7FC00000), rounded)
        return builder.trunc(builder.lshr(chosen, half), ir.IntType(16))

    return like.dtype(types.float32, like), generate


@kernel
def adamw(
    weights: Floats, copy: Halves, mean: Floats, square: Floats, gradient: Numbers,
    rate: float, decay: float, first: float, second: float, epsilon: float, steps: int,
) -> None:  # fmt: skip
    """AdamW's step number `steps` of some weights, [n], whose copy and moments are renewed in the same pass.

    Moments are zero before the first step, whatever the arrays hold.
    """
    kept, new, old, more = F32(1 - rate * decay), F32(1 - first), F32(second), F32(1 - second)
    down, spread = F32(rate / (1 - first**steps)), F32(1 / np.sqrt(1 - second**steps))
    least = F32(epsilon)
    for i in range(len(weights)):
        g = widened(gradient[i])
        before, spread_before = (mean[i], square[i]) if steps > 1 else (F32(0), F32(0))
        mean[i] = before + new * (g - before)
        square[i] = old * spread_before + more * g * g
        weights[i] = kept * weights[i] - down * mean[i] / (np.sqrt(square[i]) * spread + least)
        copy[i] = narrowed(weights[i], copy)
