"""Training, development and test documents, for a corpus that comes in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


def split_by_document(
    rows: NDArray[np.int64], fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[NDArray[np.int64], ...]:
    """Deal the documents out at random, so that each part has its fraction; parts keep the order of `rows`."""
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise UserError(f"expected fractions that add up to 1, found {tuple(fractions)}")
    place = numpy_generator(seed, "split").permutation(len(rows))
    bounds = np.rint(np.cumsum(fractions) * len(rows))
    part = np.searchsorted(bounds, place, side="right")
    return tuple(rows[part == number] for number in range(len(fractions)))
