"""What a run notes of its state as it goes on, for those who watch it from outside."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.records import RunState

STATE = "state.json"
_LONGEST = 2000  # characters of a message

Note = Callable[[Literal["training", "finished"]], None]
"""Called when a run begins with the next phase."""


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
