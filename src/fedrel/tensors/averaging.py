"""The arithmetic of a running mean, in numpy. Where numba is installed, kernels take its place.

Sums and means are in float64, rounded to float32 at the end. Where weights are numbers of examples, products are
exact, so that kernels, which may round a product and a sum at once, give the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


def add(total: Doubles, numbers: Floats, weight: float) -> None:
    """total += weight * numbers, both [n]."""
    total += np.multiply(numbers, weight, dtype=np.float64)


def add_rows(
    total: Doubles, meant: Doubles, listed: Flags, index: Numbers, values: Floats, weight: float, rest: float
) -> None:
    """total[index] += weight * values, rows of [n, d]; meant[index] -= rest; listed[index] = True."""
    total[index] += np.multiply(values, weight, dtype=np.float64)
    meant[index] -= rest
    listed[index] = True


def mean_of_rows(
    total: Doubles, meant: Doubles, listed: Flags, base: Floats, rest: float, weight: float, mean: Floats
) -> None:
    """mean = (total + (rest + meant) * base) / weight, [n, d]; where nothing is listed, rest / weight * base."""
    np.multiply(base, rest / weight, out=mean, dtype=np.float64, casting="same_kind")
    rows = np.flatnonzero(listed)
    mean[rows] = (total[rows] + (rest + meant[rows])[:, None] * base[rows]) / weight
