"""The worker-process engine: sites side by side, one thread each, with the same results as one after the other.

Two single-threaded processes beat one process with two threads here, so the site is the unit of parallelism.
Workers live as long as the run, each with one resident model. What they are sent and what they send back are
encoded messages, the same bytes that would cross a network; nothing is pickled but the start-up arguments.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.journal import Entry
from fedrel.federation.local import answered
from fedrel.federation.messages import Arrays
from fedrel.federation.wire import decode, encode

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from fedrel.config import Config
    from fedrel.federation.site import Desk, Materials
    from fedrel.federation.weights import Weights

SCORED_BY_A_WORKER = 4096  # sentences of evaluation that go to a worker at a time
AHEAD = 2  # sites each worker may be ahead of the next one in order: bounds what waits in memory


class WorkerEngine:
    """Several desks, each in a process of its own."""

    def __init__(self, config: Config, materials: Materials, workers: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fedrel-")
        materials.save(Path(self._folder.name))
        context = multiprocessing.get_context("spawn")  # a forked process would inherit torch's threads
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, config.model_dump_json(), self._folder.name), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Put one question to the sites in `own`; answers come back in the order of the sites."""
        tasks = [
            _block({"verb": "answer", "site": site, "round": round_}, arrays) for site, arrays in own.items()
        ]
        answers = self._spread(_block({"verb": "open", "phase": phase}, shared), tasks)
        for site, (note, arrays) in zip(own, answers, strict=True):
            if note["failure"]:
                yield site, Answer(None, failure=note["failure"])
            else:
                journal = note["journal"]
                journal["watched"] = {int(row): weight for row, weight in journal["watched"].items()}
                yield site, Answer(arrays, journal=Entry(**journal))

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""
        tasks = [
            _block(
                {"verb": "score", "head": head},
                {"rows": part.rows, "bounds": part.bounds, "labels": part.labels, "keys": part.keys},
            )
            for part in slices(bags, SCORED_BY_A_WORKER)
        ]
        answers = self._spread(_block({"verb": "weights"}, weights), tasks)
        return np.concatenate([arrays["scores"] for _, arrays in answers])

    def _spread(self, opening: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[dict[str, Any], Arrays]]:
        """Give tasks to whichever worker is free; yield the answers in the order of the tasks."""
        for pipe in self._pipes:
            self._send(pipe, opening)
        waiting, done = deque(enumerate(tasks)), dict[int, tuple[dict[str, Any], Arrays]]()
        busy: dict[Connection, int] = {}
        for number in range(len(tasks)):
            while number not in done:
                for pipe in self._pipes:
                    if pipe not in busy and waiting and waiting[0][0] < number + AHEAD * len(self._pipes):
                        task, block = waiting.popleft()
                        self._send(pipe, block)
                        busy[pipe] = task
                heard = wait(list(busy))
                for pipe in [pipe for pipe in busy if pipe in heard]:
                    done[busy.pop(pipe)] = _open_block(self._receive(pipe))
            yield done.pop(number)

    def _send(self, pipe: Connection, block: bytes) -> None:
        try:
            pipe.send_bytes(block)
        except OSError as error:
            raise self._lost() from error

    def _receive(self, pipe: Connection) -> bytes:
        try:
            return pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def _lost(self) -> UserError:
        codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        return UserError(
            f"a worker process ended (exit code {codes[0] if codes else 'unknown'})",
            remedy="if memory ran out, use fewer workers; then go on with --resume",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers: a closed pipe tells them, a signal those that do not listen."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if kind is not None:
                process.terminate()
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()


def _work(pipe: Connection, config: str, folder: str) -> None:
    """A worker's life: answer until the pipe closes."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    import torch

    from fedrel.config import Config
    from fedrel.federation.site import Materials
    from fedrel.prepare import desk

    torch.set_num_threads(1)
    at = desk(Config.model_validate_json(config), Materials.load(Path(folder)))
    with suppress(EOFError, OSError):
        _serve(pipe, at)


def _serve(pipe: Connection, desk: Desk) -> None:
    phase = ""
    weights: Arrays = {}
    while True:
        note, arrays = _open_block(pipe.recv_bytes())
        match note["verb"]:
            case "open":
                phase = note["phase"]
                desk.open(phase, arrays)
            case "weights":
                weights = arrays
            case "answer":
                answer = answered(desk, phase, note["round"], note["site"], arrays)
                journal = asdict(answer.journal) if answer.journal else None
                pipe.send_bytes(_block({"failure": answer.failure, "journal": journal}, answer.arrays or {}))
            case "score":
                scores = desk.score(weights, note["head"], Bags(**arrays))
                pipe.send_bytes(_block({}, {"scores": scores}))


def _block(note: Mapping[str, Any], arrays: Arrays) -> bytes:
    """A short note in JSON, then arrays: the engine's own framing around what crosses the boundary."""
    head = json.dumps(note).encode()
    return len(head).to_bytes(4, "little") + head + encode(arrays)


def _open_block(block: bytes) -> tuple[dict[str, Any], Arrays]:
    size = int.from_bytes(block[:4], "little")
    return json.loads(block[4 : 4 + size]), decode(block[4 + size :])
