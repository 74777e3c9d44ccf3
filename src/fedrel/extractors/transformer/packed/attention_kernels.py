"""Attention of packed texts and its backward pass, compiled by numba: products, softmax and dropout in the cache.

For each text and head, queries, keys and values are copied to small matrices of float32, whatever precision they
come in; numbers that leave are rounded once. bfloat16 comes as uint16, the upper halves of float32's bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.transformer.packed.dropout_kernels import hashed, raised
from fedrel.tensors.bfloat16_kernels import Floats, Numbers, narrowed, widened
from fedrel.tensors.compiling import allocating_kernel, inner
from fedrel.tensors.simd import COLUMNS, LANES, ROWS, Matrix, multiply

Ints = npt.NDArray[np.int64]
F32, U32 = np.float32, np.uint32

# The columns of `texts`.
PIECE, PIECE_END, QUERY, QUERY_END, SHARES, ASKED, ASKED_END, TOLD, SEED, STRIDE = range(10)


class Block(NamedTuple):
    """Where a matrix of states lies in an array: its first number, and the numbers from one row to the next."""

    numbers: Numbers
    at: int
    down: int


class Dropped(NamedTuple):
    """Dropout of attention: the least hash that is kept, and the factor of what is."""

    cut: int
    scale: np.float32


@allocating_kernel
def attend(
    numbers: tuple[Numbers, ...], where: Ints, width: int, heads: int, texts: Ints, cut: int, scale: float,
    shares: Numbers, asked: Ints, told: Floats,
) -> None:  # fmt: skip
    """Set contexts, one row for each query, and shares, the attention before dropout; of queries asked, `told`.

    `numbers` has the memory of queries, of keys beside values, and of contexts. `where` has a row for each of them:
    where the matrix begins there, and how far its rows are apart.
    """
    query = Block(numbers[0], where[0, 0], where[0, 1])
    memory = Block(numbers[1], where[1, 0], where[1, 1])
    context = Block(numbers[2], where[2, 0], where[2, 1])
    drop = Dropped(cut, F32(scale))
    size = width // heads
    wide, long, rows = _padded(size), _padded(_longest(texts)), _most_queries(texts) + ROWS
    q, keys, values = np.zeros(rows * size, F32), np.zeros(size * long, F32), np.zeros(long * wide, F32)
    scores, out = np.zeros(rows * long + long, F32), np.zeros(rows * wide, F32)
    lanes = np.zeros(LANES, F32)
    factor = 1 / np.sqrt(size)
    for text in texts:
        length, many = text[PIECE_END] - text[PIECE], text[QUERY_END] - text[QUERY]
        for head in range(heads):
            at = head * size
            _copy(query, text[QUERY], at, many, size, q, size)
            _copy_turned(memory, text[PIECE], at, length, size, keys, long)
            _copy(memory, text[PIECE], width + at, length, size, values, wide)
            multiply(
                Matrix(q, 0, size, 1), Matrix(keys, 0, long, COLUMNS), Matrix(scores, 0, long, 1),
                many, length, size, factor, 0.0,
            )  # fmt: skip
            first = text[SHARES] + head * many * length
            for row in range(many):
                own = scores[row * long : (row + 1) * long]
                _softmax(own, length, lanes)
                _store(own, shares, first + row * length, length)
                _drop(own, length, (head * many + row) * length, text, drop)
            for number in range(text[ASKED], text[ASKED_END]):
                place = text[TOLD] + (head * (text[ASKED_END] - text[ASKED]) + number - text[ASKED]) * length
                for column in range(length):
                    told[place + column] = scores[asked[number] * long + column] * drop.scale
            multiply(
                Matrix(scores, 0, long, 1), Matrix(values, 0, wide, COLUMNS), Matrix(out, 0, wide, 1),
                many, size, length, scale, 0.0,
            )  # fmt: skip
            _put(out, wide, context, text[QUERY], at, many, size)


@allocating_kernel
def attend_back(
    numbers: tuple[Numbers, ...], where: Ints, width: int, heads: int, texts: Ints, cut: int, scale: float,
    shares: Numbers, asked: Ints, told: Floats,
) -> None:  # fmt: skip
    """Set the gradients of queries and memory, from those of contexts and of what was told.

    `numbers` has the memory of contexts' gradients, of queries, of keys beside values, and of the gradients of the
    last two; `where` as in `attend`.
    """
    into = Block(numbers[0], where[0, 0], where[0, 1])
    query = Block(numbers[1], where[1, 0], where[1, 1])
    memory = Block(numbers[2], where[2, 0], where[2, 1])
    dquery = Block(numbers[3], where[3, 0], where[3, 1])
    dmemory = Block(numbers[4], where[4, 0], where[4, 1])
    drop = Dropped(cut, F32(scale))
    size = width // heads
    wide, long, rows = _padded(size), _padded(_longest(texts)), _most_queries(texts) + ROWS
    q, dout = np.zeros(rows * wide, F32), np.zeros(rows * wide, F32)
    out = np.zeros((max(rows, long) + ROWS) * wide, F32)
    keys, values = np.zeros(long * wide, F32), np.zeros(size * long, F32)
    share, change = np.zeros(rows * long + long, F32), np.zeros(rows * long + long, F32)
    lanes = np.zeros(LANES, F32)
    factor = 1 / np.sqrt(size)
    for text in texts:
        length, many = text[PIECE_END] - text[PIECE], text[QUERY_END] - text[QUERY]
        for head in range(heads):
            at = head * size
            _copy(query, text[QUERY], at, many, size, q, wide)
            _copy(memory, text[PIECE], at, length, size, keys, wide)
            _copy_turned(memory, text[PIECE], width + at, length, size, values, long)
            _copy(into, text[QUERY], at, many, size, dout, wide)
            first = text[SHARES] + head * many * length
            for row in range(many):
                own = share[row * long : (row + 1) * long]
                _load(shares, first + row * length, length, own)
                used = change[row * long : (row + 1) * long]
                used[:] = own
                _drop(used, length, (head * many + row) * length, text, drop)
            multiply(  # of values: what they were used with
                Matrix(change, 0, 1, long), Matrix(dout, 0, wide, COLUMNS), Matrix(out, 0, wide, 1),
                length, size, many, scale, 0.0,
            )  # fmt: skip
            _put(out, wide, dmemory, text[PIECE], width + at, length, size)
            multiply(
                Matrix(dout, 0, wide, 1), Matrix(values, 0, long, COLUMNS), Matrix(change, 0, long, 1),
                many, length, size, scale, 0.0,
            )  # fmt: skip
            for number in range(text[ASKED], text[ASKED_END]):
                place = text[TOLD] + (head * (text[ASKED_END] - text[ASKED]) + number - text[ASKED]) * length
                for column in range(length):
                    change[asked[number] * long + column] += told[place + column] * drop.scale
            for row in range(many):
                used = change[row * long : (row + 1) * long]
                _drop(used, length, (head * many + row) * length, text, drop)
                _softmax_back(used, share[row * long : (row + 1) * long], length, lanes)
            multiply(
                Matrix(change, 0, long, 1), Matrix(keys, 0, wide, COLUMNS), Matrix(out, 0, wide, 1),
                many, size, length, factor, 0.0,
            )  # fmt: skip
            _put(out, wide, dquery, text[QUERY], at, many, size)
            multiply(
                Matrix(change, 0, 1, long), Matrix(q, 0, wide, COLUMNS), Matrix(out, 0, wide, 1),
                length, size, many, factor, 0.0,
            )  # fmt: skip
            _put(out, wide, dmemory, text[PIECE], at, length, size)


@inner
def _softmax(scores: Floats, length: int, lanes: Floats) -> None:
    """Scores to probabilities, in place; what is beyond the length becomes 0. Sums go by lanes, as vectors do."""
    end = (length + LANES - 1) // LANES * LANES
    scores[length:end] = -np.inf
    lanes[:] = -np.inf
    for begin in range(0, end, LANES):
        for lane in range(LANES):
            number = scores[begin + lane]
            lanes[lane] = number if number > lanes[lane] else lanes[lane]
    largest = lanes[0]
    for lane in range(1, LANES):
        largest = max(largest, lanes[lane])
    for column in range(end):
        scores[column] = raised(scores[column] - largest)
    scores[length:] = F32(0)
    lanes[:] = F32(0)
    for begin in range(0, end, LANES):
        for lane in range(LANES):
            lanes[lane] += scores[begin + lane]
    total = lanes[0]
    for lane in range(1, LANES):
        total += lanes[lane]
    share = F32(1) / total
    for column in range(end):
        scores[column] *= share


@inner
def _softmax_back(change: Floats, share: Floats, length: int, lanes: Floats) -> None:
    """The gradient of scores from that of probabilities, in place; `share` is 0 beyond the length."""
    end = (length + LANES - 1) // LANES * LANES
    change[length:] = F32(0)
    lanes[:] = F32(0)
    for begin in range(0, end, LANES):
        for lane in range(LANES):
            lanes[lane] += change[begin + lane] * share[begin + lane]
    total = lanes[0]
    for lane in range(1, LANES):
        total += lanes[lane]
    for column in range(end):
        change[column] = share[column] * (change[column] - total)


@inner
def _drop(numbers: Floats, length: int, first: int, text: Ints, drop: Dropped) -> None:
    """Set to 0 what dropout does not keep; the text's first number stands at place 0."""
    if drop.cut:
        seed, stride = text[SEED], text[STRIDE]
        for column in range(length):
            kept = hashed(first + column, seed, stride) >= U32(drop.cut)
            numbers[column] = numbers[column] if kept else F32(0)


@inner
def _copy(source: Block, row: int, column: int, rows: int, columns: int, target: Floats, down: int) -> None:
    """Some rows and columns of a block into a matrix of floats."""
    for number in range(rows):
        at = source.at + (row + number) * source.down + column
        _load(source.numbers, at, columns, target[number * down : number * down + columns])


@inner
def _copy_turned(
    source: Block, row: int, column: int, rows: int, columns: int, target: Floats, down: int
) -> None:
    """The same, with rows and columns exchanged."""
    for number in range(rows):
        at = source.at + (row + number) * source.down + column
        for place in range(columns):
            target[place * down + number] = widened(source.numbers[at + place])


@inner
def _put(source: Floats, down: int, target: Block, row: int, column: int, rows: int, columns: int) -> None:
    """A matrix of floats into some rows and columns of a block."""
    for number in range(rows):
        at = target.at + (row + number) * target.down + column
        _store(source[number * down : number * down + columns], target.numbers, at, columns)


@inner
def _load(source: Numbers, at: int, count: int, target: Floats) -> None:
    for place in range(count):
        target[place] = widened(source[at + place])


@inner
def _store(source: Floats, target: Numbers, at: int, count: int) -> None:
    for place in range(count):
        target[at + place] = narrowed(source[place], target)


@inner
def _padded(count: int) -> int:
    return (count + COLUMNS - 1) // COLUMNS * COLUMNS


@inner
def _longest(texts: Ints) -> int:
    longest = 0
    for text in texts:
        longest = max(longest, text[PIECE_END] - text[PIECE])
    return longest


@inner
def _most_queries(texts: Ints) -> int:
    most = 0
    for text in texts:
        most = max(most, text[QUERY_END] - text[QUERY])
    return most
