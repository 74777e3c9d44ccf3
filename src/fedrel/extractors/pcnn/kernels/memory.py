"""The sizes and arrays that PCNN's kernels share, and memory for them that is kept from call to call.

To get memory from the system takes longer than to fill it, so each thread keeps its scratch arrays by name.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedrel.extractors.row_tables import FixedRows, RowEmbedding
from fedrel.tensors.simd import BLOCK, COLUMNS, ROWS, Floats, Ints

if TYPE_CHECKING:
    from fedrel.extractors.batches import Batch


_CACHE_LINE = 64  # bytes that the processor loads at once; a vector across two of them takes twice as long

_thread = threading.local()

Made = TypeVar("Made")


class Sizes(NamedTuple):
    """How much is worked on at once."""

    sentences: int
    tokens: int
    longest: int  # tokens of one sentence


def scratch(
    name: str, shape: Sequence[int], dtype: npt.DTypeLike = np.float32, fill: int = 0
) -> npt.NDArray[Any]:
    """This thread's array of that name, with whatever was last written to it; a new one is full of `fill`."""
    arrays: dict[str, npt.NDArray[Any]] = _thread.__dict__.setdefault("arrays", {})
    size = prod(shape)
    array = arrays.get(name)
    if array is None or len(array) < size:
        array = arrays[name] = aligned((size + size // 4,), dtype)
        array.fill(fill)
    return array[:size].reshape(shape)


def cached_workspace(key: Hashable, sizes: Sizes, make: Callable[[Sizes], Made]) -> Made:
    """What `make` returns for at least these sizes, kept until another key or larger sizes are asked for."""
    before, most, made = _thread.__dict__.get("kept", (None, None, None))
    if before != key or any(asked > had for asked, had in zip(sizes, most, strict=True)):
        most = type(sizes)(*(asked + asked // 4 for asked in sizes))
        made = make(most)
        _thread.kept = key, most, made
    return cast(Made, made)


def new_array(_: str, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    """A new array, for the caller alone."""
    return aligned(shape)


def aligned(shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """A new array that begins at a cache line. The system provides its memory only as it is written to."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % _CACHE_LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)


Make = Callable[[str, tuple[int, ...]], Floats]
"""Where memory comes from: `scratch` or `new_array`."""


class Network(Protocol):
    """What the kernels need of a PCNN: its weights and its sizes."""

    words: RowEmbedding | FixedRows
    head_positions: nn.Parameter
    tail_positions: nn.Parameter
    filters: nn.Parameter
    filters_bias: nn.Parameter
    classifier: nn.Linear
    window: int
    max_length: int
    dropout: float


class Shape(NamedTuple):
    """A PCNN's sizes."""

    word: int  # numbers in a word's vector
    position: int  # numbers in a distance's vector
    filters: int
    window: int
    reach: int  # larger distances than this, either way, count as this one
    width: int  # numbers in a token's inputs: of its word, then of the distances to head and tail
    distances: int  # how many different distances a token can have, as seen through its window
    pitch: int  # `width`, rounded up: from one token's inputs to the next one's
    slots: int  # `filters`, rounded up


class Text(NamedTuple):
    """`n` sentences that are processed together, laid end to end."""

    rows: Ints  # [T] each token's row in the table of words in use
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
    """The summands of tokens' outputs: lines of as many numbers as a part has filters.

    Line 0 is zeros. The other kinds follow each other, each with space for a tile's rows after it. A word has
    `window` lines: if that is three, what it adds to the token after it, to itself and to the token before it.
    """

    numbers: Floats  # [*, part]
    head: int  # the first line of what the distances to the head in a window add, by the token's own distance
    tail: int  # likewise to the tail, with the bias
    ends: int  # the first line of head, tail and bias together, for tokens near a sentence's ends
    words: int  # the first line of words


class Places(NamedTuple):
    """Which lines each token sums up, and the vectors of distances that lines are made of."""

    sources: Ints  # [T * (window + 2)] the lines of each token
    head: Floats  # [distances + window and a tile's rows, position] by distance, with the outermost repeated:
    tail: Floats  # a row and those behind it are the distances in a window
    ends: (
        Floats  # [ends and a tile's rows, 2 * window * position] the distances in windows at sentences' ends
    )


def shape_of(pcnn: Network) -> Shape:
    """A model's sizes."""
    word, position = pcnn.words.weight.shape[1], pcnn.head_positions.shape[1]
    return _shape(word, position, len(pcnn.filters), pcnn.window, pcnn.max_length)


@functools.cache
def _shape(word: int, position: int, filters: int, window: int, reach: int) -> Shape:
    """The sizes; rows are rounded up so that no loop has a remainder."""
    width, distances = word + 2 * position, 2 * (reach + window // 2) + 1
    return Shape(
        word, position, filters, window, reach, width, distances, rounded_up(width), rounded_up(filters)
    )


def rounded_up(size: int) -> int:
    """A row's length, rounded up to whole vectors."""
    return -(-size // BLOCK) * BLOCK


def text_of(rows: torch.Tensor, batch: Batch) -> Text:
    """A batch's sentences, whose tokens have these rows in the table of words in use."""
    return Text(*(array.contiguous().numpy() for array in (rows, batch.starts, batch.head, batch.tail)))


def panels_for(shape: Shape, make: Make = scratch) -> Panels:
    """Arrays for a model's panels."""
    columns, depth = shape.slots // COLUMNS, 2 * shape.window * shape.position
    return Panels(
        words=make("panels.words", (shape.window * columns * shape.word, COLUMNS)),
        distances=make("panels.distances", (columns * depth, COLUMNS)),
        bias=make("panels.bias", (shape.slots,)),
    )


def lines_for(shape: Shape, part: int, sentences: int, words: int, make: Make = scratch) -> Lines:
    """An array for the lines of so many sentences and distinct words."""
    kinds = [1, shape.distances + ROWS, shape.distances + ROWS, _ends(shape, sentences) + ROWS]
    first = np.cumsum(kinds).tolist()
    numbers = make("lines", (first[-1] + (words + ROWS) * shape.window, part))
    numbers[0] = 0
    return Lines(numbers, *first)


def places_for(shape: Shape, sentences: int, tokens: int, make: Make = scratch) -> Places:
    """Arrays for so many sentences and tokens."""
    distances = (shape.distances + shape.window + ROWS, shape.position)
    ends = (_ends(shape, sentences) + ROWS, 2 * shape.window * shape.position)
    return Places(
        sources=scratch("places.sources", (tokens * (shape.window + 2),), np.int64),
        head=make("places.head", distances),
        tail=make("places.tail", distances),
        ends=scratch("places.ends", ends),
    )


def _ends(shape: Shape, sentences: int) -> int:
    """How many tokens of so many sentences can be near an end."""
    return 2 * (shape.window // 2) * sentences
