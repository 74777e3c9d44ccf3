"""The thread engine: sites side by side in one process, where almost all of their work is kernels.

Kernels hold no interpreter lock, so threads run them side by side as processes would; and they share the
weights that a round starts from and hand over answers as they are, where processes must copy both. Each thread
works at a desk of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.local import answered
from fedrel.federation.engines.processes import AHEAD, WorkerEngine
from fedrel.federation.messages import Arrays
from fedrel.federation.runner import Desk
from fedrel.tensors import kernels

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.federation.site_data import Materials
    from fedrel.tensors.weights import Weights


TOGETHER = (
    8  # sites at the most that are one task: where there are many, handing over each would cost as much
)

Task = TypeVar("Task")
Result = TypeVar("Result")


def side_by_side(
    config: Config, materials: Materials, states: Path, workers: int
) -> ThreadEngine | WorkerEngine:
    """So many sites at once: on threads where kernels do the training, in processes elsewhere."""
    if extractor_kind(config.extractor.kind).has_kernels and kernels.available():
        from fedrel.runs.engines import desk

        first = desk(config, materials, states)
        if first.trains_by_kernels():
            return ThreadEngine([first, *(desk(config, materials, states) for _ in range(1, workers))])
    return WorkerEngine(config, materials, states, workers)


class ThreadEngine:
    """Several desks, each in use by one thread at a time."""

    def __init__(self, desks: Sequence[Desk]) -> None:
        self._desks = desks
        self._free: SimpleQueue[Desk] = SimpleQueue()
        for desk in desks:
            self._free.put(desk)
        self._threads = ThreadPoolExecutor(len(desks), "fedrel", initializer=_on_one_core)

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Put one question to the sites in `own`; answers come back in the order of the sites."""
        messages = self._desks[0].unpack(phase, shared)
        for desk in self._desks:
            desk.keep(round_, messages)

        def answer(desk: Desk, some: list[int]) -> list[tuple[int, Answer]]:
            return [(site, answered(desk, phase, round_, site, own[site])) for site in some]

        sites, together = list(own), min(max(len(own) // (32 * len(self._desks)), 1), TOGETHER)
        runs = (sites[first : first + together] for first in range(0, len(sites), together))
        for answers in self._spread(answer, runs):
            yield from answers

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""

        def score(desk: Desk, part: Bags) -> npt.NDArray[np.float32]:
            return desk.score(weights, head, part)

        parts = slices(bags, self._desks[0].materials.inputs.at_once)
        return np.concatenate(list(self._spread(score, parts)))

    def _spread(self, work: Callable[[Desk, Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Do the tasks, a few ahead of the one whose result is awaited; yield the results in order."""

        def at_a_desk(task: Task) -> Result:
            desk = self._free.get()
            try:
                return work(desk, task)
            finally:
                self._free.put(desk)

        under_way: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                under_way.append(self._threads.submit(at_a_desk, task))
                if len(under_way) > AHEAD * len(self._desks):
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:  # whoever asked may have turned away, or a task have failed
            wait([task for task in under_way if not task.cancel()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the threads finish the sites they are at; begin no other."""
        self._threads.shutdown(cancel_futures=True)


def _on_one_core() -> None:
    """More threads for one site would change the order of sums."""
    import torch

    torch.set_num_threads(1)
