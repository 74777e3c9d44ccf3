"""Run folders in every state, and runs that a test holds the lock of, as a training process would."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.studio.conftest import write_run


def write_state(folder: Path, phase: str, rounds: int = 50, **more: Any) -> None:
    about = {"phase": phase, "method": "lazy-mil", "seed": 1, "rounds": rounds, "metric": "auc", **more}
    (folder / "state.json").write_text(json.dumps(about), encoding="utf-8")


def write_unfinished(folder: Path, phase: str = "training", rounds: int = 12, **more: Any) -> Path:
    """A run that has trained `rounds` of 50 rounds."""
    write_run(folder, rounds=rounds)
    for name in ("result.json", "pr_curve.json", "case_study.json"):
        (folder / name).unlink()
    write_state(folder, phase, **more)
    return folder


@contextmanager
def trained_in(folder: Path) -> Iterator[None]:
    """The folder is locked, as by a process that trains."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def add_round(folder: Path, number: int, auc: float, seconds: float = 2.0) -> None:
    """One more line of `metrics.jsonl`."""
    line = {
        "round": number,
        "loss": 1.0 / number,
        "dev": {"auc": auc},
        "bytes": {"up": 1000, "down": 3000, "by_kind": {"Update": {"up": 1000, "down": 0}}},
        "seconds": seconds,
        "active": [1, 3],
        "examples": 10,
        "refused": [],
        "at_sites": {"1": {"loss": 0.5, "up": 400}, "3": {"loss": 0.7, "up": 600}},
    }
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
