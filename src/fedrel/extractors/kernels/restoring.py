"""The rows of a word table that a site has changed: taken down, and put back for the next site.

A site changes a few hundred of a hundred thousand rows. Which ones, the flags of `touched` tell, a line of the
cache at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.extractors.kernels.compiling import inner, kernel
from fedrel.extractors.kernels.vectors import Floats

Flags = npt.NDArray[np.bool_]

_AT_ONCE = 64


@kernel
def changed(table: Floats, touched: Flags, scale: float) -> tuple[npt.NDArray[np.int32], Floats]:
    """The touched rows' numbers, ascending, and the rows themselves, `scale` times."""
    index = _touched_rows(touched).copy()
    values = np.empty((len(index), table.shape[1]), np.float32)
    for place in range(len(index)):
        row = table[index[place]]
        for k in range(len(row)):
            values[place, k] = row[k] * np.float32(scale)
    return index, values


@kernel
def put_back(table: Floats, touched: Flags, base: Floats) -> int:
    """Let the touched rows be as in `base` again, and untouched: how many these are."""
    rows = _touched_rows(touched)
    for row in rows:
        touched[row] = False
        for k in range(table.shape[1]):
            table[row, k] = base[row, k]
    return len(rows)


@inner
def _touched_rows(touched: Flags) -> npt.NDArray[np.int32]:
    rows, at = np.empty(len(touched), np.int32), 0  # memory that is not written to is not taken up
    for first in range(0, len(touched), _AT_ONCE):
        some = touched[first : first + _AT_ONCE]
        found = False
        for flag in some:
            found |= flag
        if found:
            for place in range(len(some)):
                if some[place]:
                    rows[at] = first + place
                    at += 1
    return rows[:at]
