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


def encode(arrays: Arrays) -> bytes:
    """The arrays as bytes."""
    return save({name: np.require(array, requirements="C") for name, array in arrays.items()})


def decode(block: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays again; bytes that are not such a block are refused."""
    try:
        return load(block)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedError(f"cannot be decoded: {error}") from error


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


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    block = pipe.read(size)
    if len(block) < size:
        raise EOFError
    return block
