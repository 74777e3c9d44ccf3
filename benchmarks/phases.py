"""Where a run's time goes: by phase, on the clock and on the processors."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from fedrel.data.bags import Bags
from fedrel.evaluation import tasks
from fedrel.evaluation.ranking import Ranking
from fedrel.federation.coordinator import Engine, Federation
from fedrel.methods import lazy_mil
from fedrel.runs import engines
from fedrel.runs import train as experiment
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.folder import MetricsFile
from fedrel.tensors.weights import WeightedMean
from processes import cpu_seconds

# What stands for a phase: an object and the name of a function in it. Asking and scoring are the engine's.
WATCHED: dict[str, list[tuple[Any, str]]] = {
    "preparing": [(engines, "prepare")],
    "drawing": [(Federation, "draw")],
    "winners": [(lazy_mil, "winners")],
    "averaging": [(WeightedMean, "__init__"), (WeightedMean, "add"), (WeightedMean, "result")],
    "bags of pairs": [(tasks, "by_pair")],
    "ranking": [(tasks, "rank"), (Ranking, "metrics")],
    "journal": [(experiment, "round_record"), (MetricsFile, "append")],
    "checkpoint": [(Checkpoints, "save"), (Checkpoints, "best")],
    "model and report": [(experiment, "finish")],
}


class Phases:
    """Seconds by phase: every moment counts for the innermost phase that is under way."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()  # of floats
        self.cpu: Counter[str] = Counter()
        self._open = ["else"]
        self._at, self._used = time.perf_counter(), cpu_seconds()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """A phase from here to the end of the block."""
        self.note()
        self._open.append(phase)
        try:
            yield
        finally:
            self.note()
            self._open.pop()

    def note(self) -> None:
        """Add what passed since the last time to the phase under way."""
        now, used = time.perf_counter(), cpu_seconds()
        self.seconds[self._open[-1]] += now - self._at
        self.cpu[self._open[-1]] += used - self._used
        self._at, self._used = now, used

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch everything that a run does in this block."""
        with ExitStack() as patches:
            for phase, functions in WATCHED.items():
                for owner, name in functions:
                    patches.enter_context(patch.object(owner, name, self._timed(phase, getattr(owner, name))))
            engine = engines.engine

            @contextmanager
            def timed_engine(*given: Any) -> Iterator[TimedEngine]:
                with ExitStack() as stack:
                    with self.during("starting the engine"):
                        carrier = stack.enter_context(engine(*given))
                    yield TimedEngine(carrier, self)

            patches.enter_context(patch.object(engines, "engine", timed_engine))
            yield
        self.note()

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            with self.during(phase):
                return function(*given, **named)

        return timed


class TimedEngine(Engine):
    """An engine whose questions are phases of their own."""

    def __init__(self, engine: Any, phases: Phases) -> None:
        self._engine, self._phases = engine, phases

    def ask(self, phase: str, round_: int, shared: Any, own: Mapping[int, Any]) -> Iterator[Any]:
        """Ask; only the waiting for the next answer counts, not what the coordinator does with it."""
        answers = iter(self._engine.ask(phase, round_, shared, own))
        while True:
            with self._phases.during({"claim": "claims", "train": "training"}[phase]):
                answer = next(answers, None)
            if answer is None:
                return
            yield answer

    def score(self, weights: Any, head: str, bags: Bags) -> Any:
        """Score."""
        with self._phases.during("scoring"):
            return self._engine.score(weights, head, bags)
