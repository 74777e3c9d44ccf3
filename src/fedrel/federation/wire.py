"""Named arrays as bytes: the safetensors format, which holds numbers and no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    """The arrays again; bytes that are not such a block are refused."""
    try:
        return load(block)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedError(f"cannot be decoded: {error}") from error


def framing(arrays: Arrays) -> int:
    """How many bytes `encode` adds to the numbers themselves: the names, types, shapes and places of the arrays."""
    header: dict[str, Any] = {}
    end = 0
    rank = {
        code: place for place, code in enumerate(reversed(_CODES))
    }  # the last types stand first in a block
    for name in sorted(arrays, key=lambda name: (rank.get(_code(arrays[name]), len(rank)), name)):
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _code(array), "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return 8 + -(-len(text) // 8) * 8  # padded so that the numbers begin at a multiple of 8


def write_block(pipe: IO[bytes], note: Mapping[str, Any], body: bytes) -> None:
    """Send a short note in JSON and encoded arrays through a pipe: an engine's framing around what crosses."""
    head = json.dumps(note).encode()
    pipe.write(len(head).to_bytes(8, "little") + len(body).to_bytes(8, "little") + head)
    pipe.write(body)
    pipe.flush()


def read_block(pipe: IO[bytes]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Receive what `write_block` sent; `EOFError` where the pipe has ended."""
    sizes = _exactly(pipe, 16)
    head = _exactly(pipe, int.from_bytes(sizes[:8], "little"))
    return json.loads(head), decode(_exactly(pipe, int.from_bytes(sizes[8:], "little")))


def _code(array: npt.NDArray[Any]) -> str:
    """The format's name for a type: `F32` for float32."""
    return f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    block = pipe.read(size)
    if len(block) < size:
        raise EOFError
    return block
