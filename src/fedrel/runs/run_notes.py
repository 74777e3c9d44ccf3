"""What a run notes of itself: its state as it goes on, for those who watch it, and what it was made with.

The second is `environment.json`: versions, platform and commit, and the fingerprint of the data.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.files import ELSEWHERE
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.records import Environment, RunState
from fedrel.tensors.machine import processor

STATE = "state.json"
_LONGEST = 2000  # characters of a message

Note = Callable[[Literal["training", "finished"]], None]
"""Called when a run begins with the next phase."""

_log = logging.getLogger(__name__)

PACKAGES = (
    "fedrel",
    "torch",
    "numpy",
    "numba",
    "transformers",
    "tokenizers",
    "peft",
    "safetensors",
    "pydantic",
)


class StoppedError(Exception):
    """Raised by a watcher to stop a run that can go on later: it has not failed."""


@contextmanager
def noted(out: Path, config: Config) -> Iterator[Note]:
    """Write what a run does into its folder, from reading to its end; a failure with its message.

    A run that is interrupted or killed writes nothing more: it can be told by its lock, which nobody holds. One
    that fails before anything else is in the folder leaves nothing.
    """
    file = out / STATE
    begun = RunState(
        phase="reading",
        method=config.method,
        seed=config.seed,
        rounds=config.training.rounds,
        metric=config.evaluation.measure,
    )
    write_json(file, begun)
    try:
        yield lambda phase: write_json(file, begun.model_copy(update={"phase": phase}))
    except StoppedError:
        raise
    except Exception as error:
        if [path.name for path in out.iterdir()] == [STATE]:
            file.unlink()
        else:
            said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            write_json(file, begun.model_copy(update={"phase": "failed", "message": said[:_LONGEST]}))
        raise


def read_state(folder: Path) -> RunState | None:
    """What a run's folder says of it; None of one that was written by an earlier version."""
    file = folder / STATE
    found: RunState | None = read_json(RunState, file) if file.exists() else None
    return found


def is_running(folder: Path) -> bool:
    """Whether a process trains in this folder: it holds the folder's lock.

    To find out, the lock is taken for a moment, shared with others who ask. A run that begins in this moment
    waits for its end (`files.locked`).
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def environment(data_fingerprint: str, precision: str) -> Environment:
    """The environment of this process; `precision` is that of matrix products."""
    return Environment(
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        processor=processor(),
        precision=precision,
        commit=_commit(),
        data_fingerprint=data_fingerprint,
    )


def check_same_data(folder: Path, now: Environment) -> None:
    """Fail if a run's data have changed since it began; say so if it goes on in another precision or elsewhere."""
    begun: Environment = read_json(Environment, folder / "environment.json")
    for difference in differences(begun, now):
        _log.warning("the run goes on, but not to the same digits: %s", difference)
    if begun.data_fingerprint != now.data_fingerprint:
        problem = "the data are not those that this run began with"
        raise UserError(problem, file=folder, hint=f"restore the data files, or {ELSEWHERE}")


def differences(one: Environment, other: Environment) -> list[str]:
    """In what two environments differ that changes the last digits of results: processor and precision."""
    return [
        f"{key} was {before}, is {now}"
        for key in ("precision", "processor")
        if (before := getattr(one, key)) and (now := getattr(other, key)) and before != now
    ]


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def _commit() -> str | None:
    """The commit of the source tree this package runs from, with `+` if it has been changed since.

    As it was when a process asked first: what is changed later is not what the process has imported.
    """
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip() or None
