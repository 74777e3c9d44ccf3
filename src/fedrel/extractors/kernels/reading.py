"""A corpus's rows laid end to end, as a batch has them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.extractors.kernels.compiling import kernel
from fedrel.extractors.kernels.vectors import Ints


@kernel
def lay_end_to_end(
    tokens: npt.NDArray[np.int32], starts: Ints, lookup: Ints, rows: Ints
) -> tuple[Ints, Ints]:
    """The words of sentences, lookup[tokens], and where each sentence starts among them, [S + 1]."""
    bounds = np.zeros(len(rows) + 1, np.int64)
    for place, row in enumerate(rows):
        bounds[place + 1] = bounds[place] + starts[row + 1] - starts[row]
    words, at = np.empty(bounds[-1], np.int64), 0
    for row in rows:
        for token in range(starts[row], starts[row + 1]):
            words[at] = lookup[tokens[token]]
            at += 1
    return words, bounds
