"""The in-process engine: a plain loop over the sites, the one to read and to debug with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Answer
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.runner import Desk

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.tensors.weights import Weights


def answered(desk: Desk, phase: str, round_: int, site: int, own: Arrays) -> Answer:
    """A desk's answer for a site; a request that the site refuses is a failure with its reason."""
    try:
        arrays, journal = desk.answer(phase, round_, site, own)
    except RefusedError as refusal:
        return Answer(None, failure=f"refused the request: {refusal}")
    return Answer(arrays, journal=journal)


class LocalEngine:
    """All sites at one desk, one after the other, on one thread: more would change sums' order."""

    def __init__(self, desk: Desk) -> None:
        import torch

        torch.set_num_threads(1)
        self._desk = desk

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Put one question to the sites in `own`."""
        self._desk.open(phase, round_, shared)
        for site, arrays in own.items():
            yield site, answered(self._desk, phase, round_, site, arrays)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""
        return self._desk.score(weights, head, bags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to stop."""
