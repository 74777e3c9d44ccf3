"""Predictions as messages: the probabilities of labelled sentences' relations, in 16 or in 8 bits (FedED).

What is sent are probabilities, not logits: their logarithms are the logits up to a constant in each row, which a
softmax does not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Array, Message, RefusedError

Floats = npt.NDArray[np.float64]

LEVELS = 255  # of an 8-bit probability: a row of them adds up to this
SLACK = 2**-10  # how far a float16 probability may be from the number it stands for, with room
SMALLEST = 2.0**-24  # the smallest float16: what was rounded to zero was less
LOGS = -float(np.log(SMALLEST))  # the largest size of a logarithm of such a probability


@dataclass(frozen=True, slots=True)
class Predictions(Message):
    """Up: p(r|s) for every sentence of D_v, in float16."""

    covered_by_noise = True

    probabilities: Annotated[
        npt.NDArray[np.float16], Array("float16", ("validation", "relations"), low=0, high=1)
    ]
    """A row for each sentence of D_v, a column for each relation; each row adds up to 1."""

    @classmethod
    def of(cls, probabilities: Floats) -> Predictions:
        """Round probabilities to float16."""
        return cls(probabilities.astype(np.float16))

    def read(self) -> Floats:
        """The probabilities in float64."""
        return self.probabilities.astype(np.float64)

    def check(self) -> None:
        """Refuse rows that do not add up to 1, up to rounding."""
        rows = self.read().sum(1)
        if (abs(rows - 1) > SLACK * self.probabilities.shape[1]).any():
            raise RefusedError(
                f"predictions of a sentence add up to {rows[abs(rows - 1).argmax()]:.4g}, not 1"
            )


@dataclass(frozen=True, slots=True)
class BytePredictions(Message):
    """Up: the same in 8 bits: whole parts of 255 that add up to 255 in every row."""

    covered_by_noise = True

    probabilities: Annotated[npt.NDArray[np.uint8], Array("uint8", ("validation", "relations"))]
    """A row for each sentence of D_v, a column for each relation; each row adds up to 255."""

    @classmethod
    def of(cls, probabilities: Floats) -> BytePredictions:
        """Round to whole parts of 255."""
        return cls(in_parts(probabilities, LEVELS).astype(np.uint8))

    def read(self) -> Floats:
        """The probabilities in float64; a number that was rounded to zero is read as half a part."""
        parts = np.maximum(self.probabilities.astype(np.float64), 0.5)
        parts /= parts.sum(1, keepdims=True)
        return parts

    def check(self) -> None:
        """Refuse rows that do not add up to 255."""
        rows = self.probabilities.sum(1, dtype=np.int64)
        if (rows != LEVELS).any():
            raise RefusedError(f"predictions of a sentence add up to {rows[rows != LEVELS][0]}, not {LEVELS}")


@dataclass(frozen=True, slots=True)
class MeanPredictions:
    """The mean of several sites' predictions, in the place of one site's; it never travels."""

    probabilities: Floats

    @classmethod
    def of(cls, numbers: npt.NDArray[np.float32], teacher: str) -> MeanPredictions:
        """From the mean of what sites add to a sum, in parts of `LOGS`."""
        mean = numbers.astype(np.float64) * LOGS
        return cls(np.exp(mean) if teacher == "logits" else mean)

    def read(self) -> Floats:
        """The probabilities; those of a mean of logarithms need not add up to 1."""
        return self.probabilities


@dataclass(frozen=True, slots=True)
class Teacher(Message):
    """At the coordinator: the teacher's logits z for every sentence of D_v (Eq. 5)."""

    logits: Annotated[npt.NDArray[np.float32], Array("float32", ("validation", "relations"))]
    """A row for each sentence of D_v, a column for each relation."""


def in_parts(probabilities: Floats, levels: int) -> Floats:
    """Whole parts that add up to `levels` in every row, by largest remainders: none is off by a whole part."""
    parts = probabilities / probabilities.sum(1, keepdims=True) * levels
    whole: Floats = np.floor(parts)
    missing = levels - whole.sum(1, keepdims=True)
    rank = np.argsort(np.argsort(whole - parts, axis=1, kind="stable"), axis=1)
    whole += rank < missing
    return whole
