"""The worker-process engine: sites in parallel, with the same results as one after the other.

Two processes with a site each are faster than one process that divides a site's work. So a worker trains one site
at a time, on one core where there are enough sites. Workers live as long as the run, each with one resident model.
What is sent to them and what they send back are encoded messages, the same bytes that would cross a network.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.engines.in_process import AHEAD, answers_of
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.site_data import save_for_workers
from fedrel.federation.site_memory import Entry
from fedrel.federation.wire import encode, read_block, write_block
from fedrel.files import ScratchFolder
from fedrel.tensors.machine import available, cores

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.federation.runner import Runner
    from fedrel.federation.site_data import SiteData
    from fedrel.tensors.weights import Weights


PIPE = 1 << 20  # bytes, where the system lets us choose: an update then needs one write instead of eight


class Block(NamedTuple):
    """What goes through a worker's pipe."""

    note: Mapping[str, Any]
    arrays: Arrays


class WorkerEngine(Engine):
    """Several runners, each in a process of its own.

    `module` is run as `python -P -m MODULE FOLDER`: it opens what `save_for_workers` wrote to the folder, builds a
    runner and calls `serve`. `-P`: a user's `random.py` in the current folder is not imported for the library's.
    """

    def __init__(
        self, config: Config, site_data: SiteData, states: Path, workers: int, *, module: str
    ) -> None:
        self._folder = ScratchFolder()
        folder = Path(self._folder.name)
        self._at_once = site_data.inputs.at_once
        save_for_workers(folder, config, site_data, states)
        command = [sys.executable, "-P", "-m", module, str(folder)]
        self._workers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE)
            for _ in range(workers)
        ]

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Send one request to the sites in `own`; answers come back in the order of the sites."""
        tasks = [
            Block({"verb": "answer", "site": site, "round": round_}, arrays) for site, arrays in own.items()
        ]
        answers = self._spread(Block({"verb": "open", "phase": phase, "round": round_}, shared), tasks)
        for site, (note, arrays) in zip(own, answers, strict=True):
            if note["failure"]:
                yield site, Answer(None, failure=note["failure"])
            else:
                yield site, Answer(arrays, journal=Entry.from_json(note["journal"]))

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag."""
        tasks = [
            Block(
                {"verb": "score", "head": head},
                {"rows": part.rows, "bounds": part.bounds, "labels": part.labels, "keys": part.keys},
            )
            for part in slices(bags, self._at_once)
        ]
        answers = self._spread(Block({"verb": "weights"}, weights), tasks)
        return np.concatenate([arrays["scores"] for _, arrays in answers])

    def _spread(self, opening: Block, tasks: Sequence[Block]) -> Iterator[Block]:
        """Give tasks to whichever worker is free; yield the answers in the order of the tasks.

        Where there are fewer tasks than cores, each may use several.
        """
        body = encode(opening.arrays)
        share = max(available() // max(min(len(tasks), len(self._workers)), 1), 1)
        for worker in self._workers:
            self._send(worker, {**opening.note, "cores": share}, body)
        waiting = deque(enumerate(tasks))
        done: dict[int, Block] = {}
        busy: dict[int, tuple[IO[bytes], int]] = {}  # by the number of a pipe: the task that it works on
        for number in range(len(tasks)):
            self._hand_out(waiting, busy, number + AHEAD * len(self._workers))
            while number not in done:
                for heard in wait(list(busy)):
                    output, task = busy.pop(heard)  # type: ignore[arg-type]  # what went in as int comes out as int
                    done[task] = self._receive(output)
                # Before the answer is used: its worker should not wait for the caller.
                self._hand_out(waiting, busy, number + AHEAD * len(self._workers))
            yield done.pop(number)

    def _hand_out(
        self, waiting: deque[tuple[int, Block]], busy: dict[int, tuple[IO[bytes], int]], end: int
    ) -> None:
        """Give each idle worker the next task, as long as its number is below `end`."""
        for worker in self._workers:
            output = _output(worker)
            if waiting and waiting[0][0] < end and output.fileno() not in busy:
                task, block = waiting.popleft()
                self._send(worker, block.note, encode(block.arrays))
                busy[output.fileno()] = output, task

    def _send(self, worker: subprocess.Popen[bytes], note: Mapping[str, Any], body: bytes) -> None:
        assert worker.stdin is not None
        try:
            write_block(worker.stdin, note, body)
        except OSError as error:
            raise self._lost() from error

    def _receive(self, output: IO[bytes]) -> Block:
        try:
            block = Block(*read_block(output))
        except (EOFError, RefusedError) as error:
            raise self._lost() from error
        if "mistake" in block.note:
            raise UserError.from_json(block.note["mistake"])
        return block

    def _lost(self) -> UserError:
        codes = [code for worker in self._workers if (code := worker.poll()) is not None]
        return UserError(
            f"a worker process ended (exit code {codes[0] if codes else 'unknown'})",
            hint="if memory ran out, use fewer workers; then go on with --resume",
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers: by closing their input, or by a signal if that is not enough."""
        for worker in self._workers:
            if kind is not None:
                worker.kill()
            assert worker.stdin is not None
            with suppress(OSError):
                worker.stdin.close()
        for worker in self._workers:
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            _output(worker).close()
        self._folder.cleanup()


def serve(runner: Runner, requests: IO[bytes], answers: IO[bytes]) -> None:
    """In a worker: answer request after request. `open` (a phase) and `weights` (for scoring) have no answer."""
    phase, share = "", 1
    weights: Arrays = {}
    while True:
        note, arrays = read_block(requests)
        share = note.get("cores", share)
        match note["verb"]:
            case "open":
                phase = note["phase"]
                runner.open(phase, note["round"], arrays)
            case "weights":
                weights = arrays
            case "answer":
                with cores(share):
                    (answer,) = answers_of(runner, phase, note["round"], {note["site"]: arrays})
                journal = asdict(answer.journal) if answer.journal else None
                note = {"failure": answer.failure, "journal": journal}
                write_block(answers, note, encode(answer.arrays or {}))
            case "score":
                with cores(share):
                    scores = runner.score(weights, note["head"], Bags(**arrays))
                write_block(answers, {}, encode({"scores": scores}))


def _output(worker: subprocess.Popen[bytes]) -> IO[bytes]:
    assert worker.stdout is not None
    return worker.stdout
