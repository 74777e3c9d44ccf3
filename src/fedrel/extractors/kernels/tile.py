"""Matrix products at the processor's pace: one tile of the result at a time, held in registers.

BLAS would do as well, but numba's is SciPy's, which brings threads of its own that a site must not start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from fedrel.extractors.kernels.compiling import inner
from fedrel.extractors.kernels.vectors import LANES, Code, Floats

ROWS, COLUMNS = 6, 2 * LANES  # of a tile: twelve sums, as many as sixteen registers hold beside the factors


class Matrix(NamedTuple):
    """Where a matrix lies in an array. All is counted in floats."""

    numbers: Floats
    at: int  # where it begins
    down: int  # from one row to the next
    across: int  # from one number of a row to the next; on the right of a product, from one panel to the next


@inner
def multiply(
    left: Matrix,
    right: Matrix,
    result: Matrix,
    rows: int,
    columns: int,
    depth: int,
    factor: float,
    kept: float,
) -> None:
    """result = kept * result + factor * (left @ right); where `kept` is 0, the old result is forgotten.

    The matrix on the right comes in panels of COLUMNS columns, COLUMNS apart if its rows are whole. Rows are
    computed by sixes and columns by the panel: all arrays must have room for that, and what is in the room
    beyond is overwritten.
    """
    for column in range(0, columns, COLUMNS):
        panel = right.at + column // COLUMNS * right.across
        for row in range(0, rows, ROWS):
            _tile(
                left.numbers, left.at + row * left.down, left.down, left.across,
                right.numbers, panel, right.down,
                result.numbers, result.at + row * result.down + column, result.down,
                depth, np.float32(factor), np.float32(kept),
            )  # fmt: skip


@intrinsic  # type: ignore[untyped-decorator]
def _tile(
    _: Any, a: Any, a_at: Any, a_down: Any, a_across: Any, b: Any, b_at: Any, b_down: Any,
    c: Any, c_at: Any, c_down: Any, depth: Any, factor: Any, kept: Any,
) -> Any:  # fmt: skip
    """ROWS rows and COLUMNS columns of a product."""
    place, number = types.int64, types.float32
    signature = types.void(a, place, place, place, b, place, place, c, place, place, place, number, number)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        a, a_at, a_down, a_across, b, b_at, b_down, c, c_at, c_down, depth, factor, kept = code.arguments
        sums = [code.variable(code.zero()) for _ in range(2 * ROWS)]
        with code.loop(depth) as k:
            right = [code.vector(b, code.place(b_at, (k, b_down), half * LANES)) for half in range(2)]
            for row in range(ROWS):
                left = code.everywhere(code.element(a, code.place(a_at, (a_down, row), (k, a_across))))
                for one, total in zip(right, sums[2 * row : 2 * row + 2], strict=True):
                    code.set(total, code.multiply_add(left, one, code.get(total)))
        times, keep = code.everywhere(factor), code.everywhere(kept)
        with code.if_zero(kept) as (fresh, adding):
            for branch in (fresh, adding):
                with branch:
                    for number, total in enumerate(sums):
                        here = code.place(c_at, (c_down, number // 2), number % 2 * LANES)
                        value = code.multiply(times, code.get(total))
                        if branch is adding:
                            value = code.multiply_add(keep, code.vector(c, here), value)
                        code.store(value, c, here)
        return code.nothing

    return signature, generate
