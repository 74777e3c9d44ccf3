"""LLVM's vector language, as far as the kernels speak it.

What numba makes of plain loops keeps no sums in registers from one round of an inner loop to the next, and stays
with half a vector register even where the processor is fast with whole ones. The innermost loops are therefore
written as vector code here. It is the same on every processor; only the width differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

LANES = 16 if get_host_cpu_features().get("avx512f") else 8  # floats in a vector

_FLOAT, _PLACE, _NUMBER = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)


class Code:
    """Instructions on vectors of floats. A place is counted in elements from an array's beginning."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> None:
        self._builder = builder
        self.arguments = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        self.nothing = context.get_dummy_value()

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """A loop over 0 to count - 1; the number of the round."""
        with cgutils.for_range(self._builder, count) as loop:
            yield loop.index

    def variable(self, value: Any) -> Any:
        """Something that loops may change; a register, once LLVM has seen it."""
        return cgutils.alloca_once_value(self._builder, value)

    def get(self, variable: Any) -> Any:
        """What a variable holds."""
        return self._builder.load(variable)

    def set(self, variable: Any, value: Any) -> None:
        """Let a variable hold something else."""
        self._builder.store(value, variable)

    def place(self, at: Any, *steps: tuple[Any, Any] | int) -> Any:
        """A place and so many steps of a size (or so many single ones) more."""
        for step in steps:
            many = self._number(step) if isinstance(step, int) else self._product(*step)
            at = self._builder.add(at, many)
        return at

    def element(self, array: Any, place: Any) -> Any:
        """One number."""
        return self._builder.load(self._builder.gep(array, [place]))

    def vector(self, array: Any, place: Any) -> Any:
        """The vector that begins at a place."""
        value = self._builder.load(self._vector_at(array, place))
        value.align = 4
        return value

    def store(self, value: Any, array: Any, place: Any) -> None:
        """Put a vector to a place."""
        self._builder.store(value, self._vector_at(array, place)).align = 4

    def everywhere(self, number: Any) -> Any:
        """A vector of one number, which may be an integer."""
        if number.type != _FLOAT:
            number = self._builder.sitofp(number, _FLOAT)
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = self._builder.insert_element(undefined, number, ir.Constant(_NUMBER, 0))
        places = ir.Constant(ir.VectorType(_NUMBER, LANES), [0] * LANES)
        return self._builder.shuffle_vector(first, undefined, places)

    def zero(self) -> Any:
        """A vector of zeros."""
        return ir.Constant(_VECTOR, None)

    def add(self, left: Any, right: Any) -> Any:
        """left + right."""
        return self._builder.fadd(left, right)

    def multiply(self, left: Any, right: Any) -> Any:
        """left * right."""
        return self._builder.fmul(left, right)

    def multiply_add(self, left: Any, right: Any, total: Any) -> Any:
        """left * right + total, rounded once."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.fma.v{LANES}f32")
        return self._builder.call(function, [left, right, total])

    def above(self, left: Any, right: Any) -> Any:
        """Where left > right, or left is not a number."""
        greater = self._builder.fcmp_ordered(">", left, right)
        return self._builder.or_(greater, self._builder.fcmp_unordered("uno", left, left))

    def choose(self, condition: Any, left: Any, right: Any) -> Any:
        """`left` where the condition holds, else `right`."""
        return self._builder.select(condition, left, right)

    def if_zero(self, number: Any) -> Any:
        """Two blocks of code: for a float that is zero, and for any other."""
        return self._builder.if_else(self._builder.fcmp_ordered("==", number, ir.Constant(_FLOAT, 0.0)))

    def _product(self, left: Any, right: Any) -> Any:
        left, right = (self._number(each) if isinstance(each, int) else each for each in (left, right))
        return self._builder.mul(left, right)

    def _number(self, number: int) -> Any:
        return ir.Constant(_PLACE, number)

    def _vector_at(self, array: Any, place: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(array, [place]), _VECTOR.as_pointer())
