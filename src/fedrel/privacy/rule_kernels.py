"""The compiled loop of rules that sort every column. Import this module only where `has_numba` says so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.tensors.compiling import kernel

Floats = npt.NDArray[np.float32]
ShortInts = npt.NDArray[np.int32]

_AT_ONCE = 512  # columns, of all sites: they stay in the cache


@kernel
def compare_rows(values: Floats, pairs: ShortInts) -> None:
    """For each pair (a, b), in order: the smaller numbers go to row a, the larger to row b, column by column."""
    columns = values.shape[1]
    for start in range(0, columns, _AT_ONCE):
        end = min(start + _AT_ONCE, columns)
        for pair in range(len(pairs)):
            low, high = values[pairs[pair, 0], start:end], values[pairs[pair, 1], start:end]
            for column in range(end - start):
                one, other = low[column], high[column]
                low[column] = min(one, other)
                high[column] = max(one, other)
