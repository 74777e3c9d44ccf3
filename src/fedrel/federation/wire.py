"""Named arrays as one block of bytes: the safetensors format, which holds numbers and no code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedrel.federation.messages import Arrays, RefusedError


def encode(arrays: Arrays) -> bytes:
    """The arrays as bytes."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def decode(block: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays again; bytes that are not such a block are refused."""
    try:
        return load(block)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedError(f"cannot be decoded: {error}") from error
