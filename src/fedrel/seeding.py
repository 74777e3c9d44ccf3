"""Random numbers derived from (seed, round, site, purpose), never from a global generator.

So the same purpose gets the same numbers in every process, whatever the order of work.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: int | str) -> int:
    """A 63-bit seed for one purpose.

    >>> derive(1, "draw", 3) == derive(1, "draw", 3) != derive(1, "draw", 4)
    True
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.Generator(np.random.PCG64(derive(seed, *purpose)))


def torch_generator(seed: int, *purpose: int | str, device: str = "cpu") -> torch.Generator:
    """A torch generator for one purpose."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, *purpose))
