"""Named arrays as bytes, in the safetensors format, which holds numbers and no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedrel.federation.messages import Arrays, RefusedError

# The format's types, in its own order.
_CODES = ("U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64")


def encode(arrays: Arrays) -> bytes:
    """The arrays as bytes."""
    return save({name: np.require(array, requirements="C") for name, array in arrays.items()})


def decode(block: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays again; `RefusedError` for other bytes."""
    try:
        return load(block)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedError(f"cannot be decoded: {error}") from error


def framing(arrays: Arrays) -> int:
    """How many bytes `encode` adds to the numbers: the names, types, shapes and offsets of the arrays."""
    length, end = 1 + max(len(arrays), 1), 0  # the braces and the commas between
    for name, array in sorted(arrays.items(), key=_order):
        begin, end = end, end + array.nbytes
        shape = ",".join(map(str, array.shape))
        length += _quoted(name) + len(
            f':{{"dtype":"{_code(array.dtype)}","shape":[{shape}],"data_offsets":[{begin},{end}]}}'
        )
    return 8 + -(-length // 8) * 8  # padded so that the numbers begin at a multiple of 8


def write_block(pipe: IO[bytes], note: Mapping[str, Any], body: bytes) -> None:
    """Write a short note in JSON and encoded arrays to a worker's pipe."""
    head = json.dumps(note).encode()
    pipe.write(len(head).to_bytes(8, "little") + len(body).to_bytes(8, "little") + head)
    pipe.write(body)
    pipe.flush()


def read_block(pipe: IO[bytes]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `write_block` wrote; `EOFError` at the end of the pipe."""
    sizes = _exactly(pipe, 16)
    head = _exactly(pipe, int.from_bytes(sizes[:8], "little"))
    return json.loads(head), decode(_exactly(pipe, int.from_bytes(sizes[8:], "little")))


def _order(named: tuple[str, npt.NDArray[Any]]) -> tuple[int, str]:
    """The sort key of an array in a block: the last types come first."""
    return _rank(named[1].dtype), named[0]


@cache
def _rank(dtype: np.dtype[Any]) -> int:
    code = _code(dtype)
    return -_CODES.index(code) if code in _CODES else 1


@cache
def _code(dtype: np.dtype[Any]) -> str:
    """The format's name for a type: `F32` for float32."""
    return f"{dtype.kind.upper()}{8 * dtype.itemsize}"


@cache
def _quoted(name: str) -> int:
    """How many bytes a name takes in JSON."""
    return len(json.dumps(name, ensure_ascii=False).encode())


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    block = pipe.read(size)
    if len(block) < size:
        raise EOFError
    return block
