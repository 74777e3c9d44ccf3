"""The rows of a word table that a site has changed: taken down, and put back for the next site.

A site changes a few hundred of a hundred thousand rows. Which ones, the flags of `touched` tell, a line of the
cache at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.simd import Floats, Ints
from fedrel.tensors.compiling import inner, kernel

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


@kernel
def lay_end_to_end(
    tokens: npt.NDArray[np.int32], starts: Ints, lookup: Ints, rows: Ints
) -> tuple[Ints, Ints]:
    """The words of sentences, lookup[tokens], and where each sentence starts among them, [S + 1].

    Kernels do not look where they read: what they will read is checked.
    """
    bounds = np.zeros(len(rows) + 1, np.int64)
    for place, row in enumerate(rows):
        if row < 0 or row >= len(starts) - 1:
            raise IndexError("a row is not in the corpus")
        bounds[place + 1] = bounds[place] + starts[row + 1] - starts[row]
    words, at = np.empty(bounds[-1], np.int64), 0
    for row in rows:
        for token in range(starts[row], starts[row + 1]):
            word = tokens[token]
            if word < 0 or word >= len(lookup):
                raise IndexError("a token is not in the vocabulary")
            words[at] = lookup[word]
            at += 1
    return words, bounds
