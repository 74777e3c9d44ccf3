"""The innermost loops as vector code for LLVM: a product of matrices, and sums of rows with their maxima.

When numba compiles plain loops, it keeps no sums in registers between two rounds of an inner loop, and uses only
half of a vector register even where the processor is fast with whole ones. So these loops are written in LLVM's
instructions. The code is the same on every processor; only the width of vectors differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedrel.tensors.compiling import inner

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

LANES = 16 if get_host_cpu_features().get("avx512f") else 8  # floats in a vector

_FLOAT, _PLACE, _NUMBER = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)


class Code:
    """Instructions on vectors of floats. Places are counted in elements from an array's beginning."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> None:
        self._builder = builder
        self.arguments = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        self.nothing = context.get_dummy_value()

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """A loop over 0 to count - 1; yields the number of the round."""
        with cgutils.for_range(self._builder, count) as loop:
            yield loop.index

    def variable(self, value: Any) -> Any:
        """A variable that loops may change; LLVM keeps it in a register."""
        return cgutils.alloca_once_value(self._builder, value)

    def get(self, variable: Any) -> Any:
        """The value of a variable."""
        return self._builder.load(variable)

    def set(self, variable: Any, value: Any) -> None:
        """Set a variable."""
        self._builder.store(value, variable)

    def place(self, at: Any, *steps: tuple[Any, Any] | int) -> Any:
        """A place plus steps, each given as a count and a size, or as a number of elements."""
        for step in steps:
            many = self._number(step) if isinstance(step, int) else self._product(*step)
            at = self._builder.add(at, many)
        return at

    def element(self, array: Any, place: Any) -> Any:
        """The number at a place."""
        return self._builder.load(self._builder.gep(array, [place]))

    def vector(self, array: Any, place: Any) -> Any:
        """The vector that begins at a place."""
        value = self._builder.load(self._vector_at(array, place))
        value.align = 4
        return value

    def store(self, value: Any, array: Any, place: Any) -> None:
        """Store a vector at a place."""
        self._builder.store(value, self._vector_at(array, place)).align = 4

    def everywhere(self, number: Any) -> Any:
        """A vector that repeats one number, which may be an integer."""
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


ROWS, COLUMNS = 6, 2 * LANES  # of a tile: twelve sums, which fit in sixteen registers beside the factors


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
    """result = kept * result + factor * (left @ right); where `kept` is 0, the old result is not read.

    The matrix on the right comes in panels of COLUMNS columns, COLUMNS apart if its rows are whole. Results are
    computed ROWS rows and a panel at a time: all arrays must be large enough for that, and what is beyond the
    result is overwritten.
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


_VECTORS = 4  # in a block; with the maxima and their places they take twelve of sixteen registers
BLOCK = _VECTORS * LANES


@inner
def raise_to_sums(
    lines: Floats, length: int, sources: Ints, at: int, per: int, count: int, first: int,
    best: Floats, where: Floats, place: int,
) -> None:  # fmt: skip
    """Raise `length` numbers of `best`, from a place on, to the largest of `count` sums of lines of that length.

    The first sum is of the lines that begin at the places sources[at : at + per]; the sources of the next one
    follow. `where` gets at the same place the number of the first sum that is the largest, counted from `first`; it
    is a float, so that instructions on vectors of floats can select it. NaN counts as larger than any number. Where
    `where` is empty, only the values are found.
    """
    if len(where) == 0:
        for number in range(count):
            for column in range(0, length, BLOCK):
                _raise(lines, sources, at + number * per, per, 1, column, best, place + column)
    else:
        for column in range(0, length, BLOCK):
            _raise_and_note(lines, sources, at, per, count, column, best, place + column, first, where)


@inner
def add_weighted(
    matrix: Floats, length: int, places: Ints, weights: Floats, begin: int, end: int, total: Floats, at: int
) -> None:
    """Add weighted rows of a matrix to `length` numbers of `total`, from a place on.

    The rows begin at places[begin:end] of the matrix.
    """
    for column in range(0, length, BLOCK):
        _add_weighted(matrix, places, weights, begin, end - begin, column, total, at + column)


@intrinsic  # type: ignore[untyped-decorator]
def _raise(
    _: Any, lines: Any, sources: Any, at: Any, per: Any, count: Any, column: Any, best: Any, place: Any
) -> Any:
    """`raise_to_sums` for one block, without `where`."""
    signature = types.void(lines, sources, *[types.int64] * 4, best, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        return _raising(code, *code.arguments)

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def _raise_and_note(
    _: Any, lines: Any, sources: Any, at: Any, per: Any, count: Any, column: Any, best: Any, place: Any,
    first: Any, where: Any,
) -> Any:  # fmt: skip
    """`raise_to_sums` for one block."""
    signature = types.void(lines, sources, *[types.int64] * 4, best, types.int64, types.int64, where)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        return _raising(code, *code.arguments)

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def _add_weighted(
    _: Any, matrix: Any, places: Any, weights: Any, begin: Any, count: Any, column: Any, total: Any, at: Any
) -> Any:
    """`add_weighted` for one block."""
    signature = types.void(matrix, places, weights, *[types.int64] * 3, total, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        matrix, places, weights, begin, count, column, total, at = code.arguments
        sums = _variables(code, total, at)
        with code.loop(count) as number:
            entry = code.place(begin, (number, 1))
            weight = code.everywhere(code.element(weights, entry))
            row = code.place(column, (code.element(places, entry), 1))
            for sum_, values in zip(sums, _block(code, matrix, row), strict=True):
                code.set(sum_, code.multiply_add(weight, values, code.get(sum_)))
        _store(code, sums, total, at)
        return code.nothing

    return signature, generate


def _raising(
    code: Code, lines: Any, sources: Any, at: Any, per: Any, count: Any, column: Any, best: Any, place: Any,
    first: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    largest = _variables(code, best, place)
    found = [] if where is None else _variables(code, where, place)
    with code.loop(count) as number:
        sums = [code.variable(code.zero()) for _ in range(_VECTORS)]
        with code.loop(per) as source:
            entry = code.place(at, (number, per), (source, 1))
            line = code.place(column, (code.element(sources, entry), 1))
            for sum_, values in zip(sums, _block(code, lines, line), strict=True):
                code.set(sum_, code.add(code.get(sum_), values))
        new = [code.above(code.get(sum_), code.get(most)) for sum_, most in zip(sums, largest, strict=True)]
        for more, sum_, most in zip(new, sums, largest, strict=True):
            code.set(most, code.choose(more, code.get(sum_), code.get(most)))
        for more, place_ in zip(new, found, strict=bool(found)):
            here = code.everywhere(code.place(first, (number, 1)))
            code.set(place_, code.choose(more, here, code.get(place_)))
    _store(code, largest, best, place)
    _store(code, found, where, place)
    return code.nothing


def _block(code: Code, array: Any, place: Any) -> list[Any]:
    return [code.vector(array, code.place(place, number * LANES)) for number in range(_VECTORS)]


def _variables(code: Code, array: Any, place: Any) -> list[Any]:
    return [code.variable(vector) for vector in _block(code, array, place)]


def _store(code: Code, variables: list[Any], array: Any, place: Any) -> None:
    for number, variable in enumerate(variables):
        code.store(code.get(variable), array, code.place(place, number * LANES))
