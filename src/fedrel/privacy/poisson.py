"""Poisson sampling, and where its randomness and that of noise come from.

Accounting assumes that each example is in a step with the same probability, independently of all others, and that
nobody else knows which were: so the sizes of batches vary, some are empty, and there are no epochs in which every
example has its turn. In a simulation all randomness follows from the run's seed. At a real site it comes from the
operating system, anew for every request: a coordinator that knows the seed could take the noise off again, and one
that asks twice could subtract two answers that had the same noise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Randomness(Protocol):
    """Where numbers are drawn from."""

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed."""


class SeededRandomness:
    """Numbers that follow from a generator's seed: for simulations."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""
        return self._generator.random(count)

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed."""
        return self._generator.standard_normal(count, np.float32)


class SystemRandomness:
    """Numbers that nobody can predict or repeat: a stream of ChaCha20 under a key of the operating system's.

    Every call has a new key.
    """

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""
        fine = np.frombuffer(_stream(8 * count), np.uint64) >> np.uint64(11)
        return fine.astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed (Box and Muller 1958)."""
        pairs = (count + 1) // 2
        stream = _stream(12 * pairs)
        fine = (np.frombuffer(stream, np.uint64, pairs) >> np.uint64(11)).astype(np.float64)
        coarse = np.frombuffer(stream, np.uint32, pairs, 8 * pairs).astype(np.float32)
        radius = np.sqrt(-2 * np.log((fine + 1) * 2.0**-53)).astype(np.float32)
        angle = coarse * np.float32(2 * np.pi * 2.0**-32)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def _stream(size: int) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    cipher = Cipher(algorithms.ChaCha20(os.urandom(32), os.urandom(16)), mode=None)
    return cipher.encryptor().update(bytes(size))


def poisson_batches(
    examples: int, rate: float, steps: int, randomness: Randomness
) -> Iterator[npt.NDArray[np.int64]]:
    """The examples of each step: each example is in a step with probability `rate`, whatever else is in it."""
    for _ in range(steps):
        yield np.flatnonzero(randomness.uniform(examples) < rate)
