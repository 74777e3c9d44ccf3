"""Room to work in that is kept from call to call: asking the system for memory costs more than filling it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.pcnn.kernels.simd import BLOCK, COLUMNS, ROWS, Floats, Ints

if TYPE_CHECKING:
    from fedrel.extractors.base import Batch
    from fedrel.extractors.pcnn.network import PCNN


_LINE = 64  # bytes that the processor loads at once; a vector across two of them takes twice as long

_own = threading.local()

Made = TypeVar("Made")


class Sizes(NamedTuple):
    """How much is worked on at once."""

    sentences: int
    tokens: int
    longest: int  # tokens of one sentence


def room(
    name: str, shape: Sequence[int], dtype: npt.DTypeLike = np.float32, fill: int = 0
) -> npt.NDArray[Any]:
    """An array of this thread's own, as the last user of that name left it; full of `fill` at first."""
    arrays: dict[str, npt.NDArray[Any]] = _own.__dict__.setdefault("arrays", {})
    size = prod(shape)
    array = arrays.get(name)
    if array is None or len(array) < size:
        array = arrays[name] = aligned((size + size // 4,), dtype)
        array.fill(fill)
    return array[:size].reshape(shape)


def kept(key: Hashable, sizes: Sizes, make: Callable[[Sizes], Made]) -> Made:
    """What `make` makes of rooms for at least these sizes, kept until another key or larger sizes are asked for."""
    before, most, made = _own.__dict__.get("kept", (None, None, None))
    if before != key or any(asked > had for asked, had in zip(sizes, most, strict=True)):
        most = type(sizes)(*(asked + asked // 4 for asked in sizes))
        made = make(most)
        _own.kept = key, most, made
    return cast(Made, made)


def own(_: str, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    """An array for the caller alone."""
    return aligned(shape)


def aligned(shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """An array that begins where a line of the cache does. Memory is taken up only as it is written to."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)


Make = Callable[[str, tuple[int, ...]], Floats]
"""Where memory comes from: the thread's scratch, or a place of its own."""


class Shape(NamedTuple):
    """A PCNN's sizes."""

    word: int  # numbers in a word's vector
    position: int  # numbers in a distance's vector
    filters: int
    window: int
    reach: int  # distances are told apart up to here, either way
    width: int  # numbers in a token's inputs: its word's, then the head's distance's, then the tail's
    distances: int  # so many distances differ in what a token gets from the distances in its window
    pitch: int  # from one token's inputs to the next one's: all their numbers and some zeros
    slots: int  # as many filters, and some of zeros


class Text(NamedTuple):
    """`n` sentences that are worked on together, laid end to end."""

    rows: Ints  # [T] each token's row in the table of words at hand
    starts: Ints  # [n + 1] sentence s is rows[starts[s]:starts[s + 1]]
    head: Ints  # [n]
    tail: Ints  # [n]


class Panels(NamedTuple):
    """The filters as factors on the right of a product: part after part, in panels of COLUMNS filters.

    Of words, a part has all panels of the first offset, then of the next; of distances, a panel has the rows
    for the head at each offset, then for the tail.
    """

    words: Floats  # [window * slots / COLUMNS * word, COLUMNS]
    distances: Floats  # [slots / COLUMNS * 2 * window * position, COLUMNS]
    bias: Floats  # [slots]


class Lines(NamedTuple):
    """What can be added up to a token's output: lines of as many numbers as a part has filters.

    Line 0 is zeros. The other kinds follow each other, with room for a tile's rows behind each. A word has
    `window` lines: if that is three, what it adds to the token behind it, to its own and to the one before it.
    """

    numbers: Floats  # [*, part]
    head: int  # the first line of what the distances in a window add, by the token's distance to the head
    tail: int  # likewise to the tail, with the bias
    ends: int  # the first line of head, tail and bias together, for tokens at a sentence's end
    words: int  # the first line of words


class Places(NamedTuple):
    """Where sentences find their lines, and the inputs of those lines that are not words'."""

    sources: Ints  # [T * (window + 2)] the lines of each token
    head: Floats  # [distances + window and a tile's rows, position] by distance, with the outermost repeated:
    tail: Floats  # a row and those behind it are the distances in a window
    ends: (
        Floats  # [ends and a tile's rows, 2 * window * position] the distances in windows at sentences' ends
    )


def shape_of(pcnn: PCNN) -> Shape:
    """A model's sizes."""
    word, position = pcnn.words.weight.shape[1], pcnn.head_positions.shape[1]
    return _shape(word, position, len(pcnn.filters), pcnn.window, pcnn.max_length)


@functools.cache
def _shape(word: int, position: int, filters: int, window: int, reach: int) -> Shape:
    """Rows are rounded up so that no loop has a remainder."""
    width, distances = word + 2 * position, 2 * (reach + window // 2) + 1
    return Shape(word, position, filters, window, reach, width, distances, whole(width), whole(filters))


def whole(size: int) -> int:
    """A row's length, rounded up."""
    return -(-size // BLOCK) * BLOCK


def text(rows: torch.Tensor, batch: Batch) -> Text:
    """A batch's sentences, whose tokens have these rows in the table at hand."""
    return Text(*(array.contiguous().numpy() for array in (rows, batch.starts, batch.head, batch.tail)))


def panels(shape: Shape, make: Make = room) -> Panels:
    """Room for a model's panels."""
    columns, depth = shape.slots // COLUMNS, 2 * shape.window * shape.position
    return Panels(
        words=make("panels.words", (shape.window * columns * shape.word, COLUMNS)),
        distances=make("panels.distances", (columns * depth, COLUMNS)),
        bias=make("panels.bias", (shape.slots,)),
    )


def lines(shape: Shape, part: int, sentences: int, words: int, make: Make = room) -> Lines:
    """Room for the lines of so many sentences and distinct words."""
    kinds = [1, shape.distances + ROWS, shape.distances + ROWS, _ends(shape, sentences) + ROWS]
    first = np.cumsum(kinds).tolist()
    numbers = make("lines", (first[-1] + (words + ROWS) * shape.window, part))
    numbers[0] = 0
    return Lines(numbers, *first)


def places(shape: Shape, sentences: int, tokens: int, make: Make = room) -> Places:
    """Room for the places of so many sentences and tokens."""
    distances = (shape.distances + shape.window + ROWS, shape.position)
    ends = (_ends(shape, sentences) + ROWS, 2 * shape.window * shape.position)
    return Places(
        sources=room("places.sources", (tokens * (shape.window + 2),), np.int64),
        head=make("places.head", distances),
        tail=make("places.tail", distances),
        ends=room("places.ends", ends),
    )


def _ends(shape: Shape, sentences: int) -> int:
    """How many tokens of so many sentences may stand at an end."""
    return 2 * (shape.window // 2) * sentences
