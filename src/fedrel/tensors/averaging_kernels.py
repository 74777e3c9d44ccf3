"""What `fedrel.tensors.weights` does, reading every number once and writing down nothing in between."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.simd import Floats
from fedrel.tensors.compiling import kernel

Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@kernel
def add(total: Doubles, numbers: Floats, weight: float) -> None:
    """total += weight * numbers, both [n]."""
    for i in range(len(total)):
        total[i] += weight * numbers[i]


@kernel
def add_rows(
    total: Doubles, meant: Doubles, listed: Flags, index: Numbers, values: Floats, weight: float, rest: float
) -> None:
    """total[index] += weight * values, rows of [n, d]; meant[index] -= rest; listed[index] = True."""
    for place in range(len(index)):
        row = index[place]
        meant[row] -= rest
        listed[row] = True
        sums, site = total[row], values[place]
        for k in range(len(sums)):
            sums[k] += weight * site[k]


@kernel
def mean_of_rows(
    total: Doubles, meant: Doubles, listed: Flags, base: Floats, rest: float, weight: float, mean: Floats
) -> None:
    """mean = (total + (rest + meant) * base) / weight, [n, d]; where nothing is listed, rest / weight * base."""
    factor = rest / weight
    for row in range(len(base)):
        if listed[row]:
            for k in range(base.shape[1]):
                mean[row, k] = (total[row, k] + (rest + meant[row]) * base[row, k]) / weight
        else:
            for k in range(base.shape[1]):
                mean[row, k] = factor * base[row, k]
