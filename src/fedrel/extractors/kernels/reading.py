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
