"""The in-process engine: a plain loop over the sites. Read this one first, and debug with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.runner import Runner
from fedrel.tensors.machine import available, cores

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.tensors.weights import Weights


def answers_of(runner: Runner, phase: str, round_: int, own: Mapping[int, Arrays]) -> list[Answer]:
    """A runner's answers for sites; a request that a site refuses becomes a failure with the reason."""
    return [
        Answer(None, failure=f"refused the request: {found}")
        if isinstance(found, RefusedError)
        else Answer(found[0], journal=found[1])
        for found in runner.answers(phase, round_, own)
    ]


class LocalEngine(Engine):
    """All sites with one runner.

    PyTorch itself uses one thread: more would change the order of sums. An extractor whose work falls into parts
    may use as many cores as `share` says, by default all.
    """

    def __init__(self, runner: Runner, share: int | None = None) -> None:
        import torch

        torch.set_num_threads(1)
        self._runner, self._share = runner, share or available()

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Send one request to the sites in `own`."""
        self._runner.open(phase, round_, shared)
        for some in self._runner.groups(own):
            with cores(self._share):
                answers = answers_of(self._runner, phase, round_, some)
            yield from zip(some, answers, strict=True)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""
        with cores(self._share):
            return self._runner.score(weights, head, bags)
