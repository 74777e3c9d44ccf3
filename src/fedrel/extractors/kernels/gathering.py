"""Sums of rows that lie here and there, a block of columns at a time, held in registers.

The two innermost loops of PCNN are of this kind: a token's output is a sum of table rows, of which the largest is
sought; and the gradient of a maximum is a weighted sum of the few rows that won.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from fedrel.extractors.kernels.compiling import inner
from fedrel.extractors.kernels.vectors import LANES, Code, Floats, Ints

_VECTORS = 4  # in a block; with their maxima and the maxima's places they take twelve of sixteen registers
BLOCK = _VECTORS * LANES


@inner
def raise_to_sums(
    lines: Floats, length: int, sources: Ints, at: int, per: int, count: int, first: int,
    best: Floats, where: Floats, place: int,
) -> None:  # fmt: skip
    """Raise `length` numbers of `best`, from a place on, to the largest of `count` sums of lines of that length.

    The first sum is of the lines that begin at the places sources[at : at + per], the sources of the next one
    stand behind. `where` gets at the same place the number of the first sum that was larger than all before,
    counted from `first`; it is a float, so that vectors of floats can choose it. NaN counts as larger than all.
    Where `where` is empty, only the values are found.
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
