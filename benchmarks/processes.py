"""What a process and all that it started use: memory, and the processors' time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLED = 0.2  # seconds between two looks at the memory
TICKS = os.sysconf("SC_CLK_TCK")


class Memory:
    """The peak of the proportional set sizes of this process and all that descend from it, summed."""

    def __init__(self, every: float = SAMPLED) -> None:
        self.peak = 0
        self._every = every
        self._stop = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample from now on until the block ends."""
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self._every):
            self.peak = max(self.peak, sum(map(_resident, family(os.getpid()))))


def cpu_seconds() -> float:
    """The processors' time that this process and its descendants have used."""
    return sum(map(_used, family(os.getpid())))


def _used(process: int) -> float:
    """A process's own seconds, and those of its children that have ended."""
    fields = read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def family(process: int) -> list[int]:
    """A process and its descendants."""
    family = [process]
    for parent in family:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            family += map(int, read(children).split())
    return family


def _resident(process: int) -> int:
    """A process's proportional set size, in bytes."""
    sizes = dict(line.split(":") for line in read(Path(f"/proc/{process}/smaps_rollup")).splitlines()[1:])
    return int(sizes["Pss"].removesuffix("kB")) * 1024 if "Pss" in sizes else 0


def read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # it has ended since
        return ""
