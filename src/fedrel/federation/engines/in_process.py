"""The engines inside one process: a plain loop over the sites, and threads. Read the loop first, and debug with it.

Threads run sites side by side, where almost all of their work is kernels. Kernels release the interpreter lock, so
threads run them in parallel as processes would. Threads also share the weights that a round starts from and return
answers without copying, where processes must copy both. Each thread has a runner of its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices
from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.runner import Runner
from fedrel.tensors.machine import available, cores

if TYPE_CHECKING:
    from fedrel.tensors.weights import Weights


AHEAD = 2  # answers that a worker may be ahead of the next one in order: limits how many wait in memory
TASKS = (
    16  # for each runner, at least, where there are so many sites: with fewer, one might be idle at the end
)

SWITCHING = (
    1e-4  # seconds that a thread keeps the interpreter while another waits; Python's 5 ms are many kernels
)

Task = TypeVar("Task")
Result = TypeVar("Result")


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


class ThreadEngine(Engine):
    """One thread for each of several runners."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners
        self._free: SimpleQueue[Runner] = SimpleQueue()
        for runner in runners:
            self._free.put(runner)
        self._threads = ThreadPoolExecutor(len(runners), "fedrel", initializer=_on_one_core)
        self._switching = sys.getswitchinterval()

    def __enter__(self) -> Self:
        sys.setswitchinterval(SWITCHING)
        return self

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Send one request to the sites in `own`; answers come back in the order of the sites."""
        messages = self._runners[0].unpack(phase, shared)
        for runner in self._runners:
            runner.keep(round_, messages)

        def answer(runner: Runner, some: Mapping[int, Arrays]) -> list[tuple[int, Answer]]:
            return list(zip(some, answers_of(runner, phase, round_, some), strict=True))

        together = max(len(own) // (TASKS * len(self._runners)), 1)
        for answers in self._spread(answer, self._runners[0].groups(own, together)):
            yield from answers

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""

        def score(runner: Runner, part: Bags) -> npt.NDArray[np.float32]:
            return runner.score(weights, head, part)

        parts = slices(bags, self._runners[0].model.site_data.inputs.at_once)
        return np.concatenate(list(self._spread(score, parts)))

    def _spread(self, work: Callable[[Runner, Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Run the tasks, a few ahead of the one whose result is next; yield the results in order."""

        def with_free_runner(task: Task) -> Result:
            runner = self._free.get()
            try:
                return work(runner, task)
            finally:
                self._free.put(runner)

        under_way: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                under_way.append(self._threads.submit(with_free_runner, task))
                if len(under_way) > AHEAD * len(self._runners):
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:  # the caller may have stopped reading, or a task may have failed
            wait([task for task in under_way if not task.cancel()])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the threads finish the sites that they have begun, and begin no others."""
        self._threads.shutdown(cancel_futures=True)
        sys.setswitchinterval(self._switching)


def _on_one_core() -> None:
    """More threads for one site would change the order of sums."""
    import torch

    torch.set_num_threads(1)
