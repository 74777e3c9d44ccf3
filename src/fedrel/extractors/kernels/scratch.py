"""Room to work in that is kept from call to call: asking the system for memory costs more than filling it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

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
