"""Which bags go into a batch together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def shuffled(
    count: int, size: int, generator: np.random.Generator, lengths: Ints | None = None
) -> Iterator[Ints]:
    """One epoch: every one of `count` bags in one batch of `size`, at random.

    With `lengths`, for a model that pads: neighbours in length share a batch, ties and the order of the
    batches are random, so almost nothing is padded.
    """
    order = generator.permutation(count)
    if lengths is not None:
        order = order[np.argsort(lengths[order], kind="stable")]
    batches = [order[begin : begin + size] for begin in range(0, count, size)]
    if lengths is not None:
        batches = [batches[which] for which in generator.permutation(len(batches))]
    yield from batches
