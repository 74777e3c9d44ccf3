"""Dropout's chance: a number for every (step's seed, sentence, unit), the same wherever and whenever it is drawn.

Numbers come from hashing what they are for. So none waits for the one before it, and whole vectors of them are
drawn at once. `extractors.dropout.units_kept` is the same in tensors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.extractors.kernels.compiling import inner, kernel

_STEPS = 1 << 24  # numbers drawn have as many values: every one of them is a float32


@kernel
def draw_kept(seed: int, sentence: int, rate: float, mask: npt.NDArray[np.bool_]) -> None:
    """Keep each unit of a sentence, the n-th of its batch, with probability 1 - rate."""
    key = _scramble_long(np.uint64(seed) + np.uint64(sentence))
    low, high = np.uint32(key), np.uint32(key >> np.uint64(32))
    least = np.uint32(rate * _STEPS)
    for unit in range(len(mask)):
        number = _scramble(np.uint32(_scramble(np.uint32(np.uint32(unit) + low)) ^ high))
        mask[unit] = np.uint32(number >> np.uint32(8)) >= least


@inner
def _scramble_long(x: np.uint64) -> np.uint64:
    """SplitMix64's output function (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def _scramble(x: np.uint32) -> np.uint32:
    """The finaliser of MurmurHash3: every bit of x has a hand in every bit of the result."""
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))
