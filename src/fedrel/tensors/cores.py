"""Several cores for one site: work that always falls into the same parts, done side by side where cores are free.

Engines say how many cores a site's work may use; the work itself says how it is divided. So a site comes to the
same bits on one core and on several.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

Result = TypeVar("Result")

PARTS = 2  # that a batch is divided into, however many cores there are

_here = threading.local()


def available() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Let this thread's work use so many cores; without it, one."""
    before = getattr(_here, "cores", 1)
    _here.cores = count
    try:
        yield
    finally:
        _here.cores = before


def in_parts(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Do all tasks and give their results in order, `PARTS` of them at a time if `cores` allows it.

    Tasks depend on nothing that another one does, so that the result is the same either way.
    """
    if len(tasks) == 1 or getattr(_here, "cores", 1) < PARTS:
        return [task() for task in tasks]
    found: list[Result] = []
    for begin in range(0, len(tasks), PARTS):
        first, *others = tasks[begin : begin + PARTS]
        waiting = [_pool().submit(other) for other in others]
        found += [first(), *(one.result() for one in waiting)]
    return found


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "fedrel-part", initializer=_on_one_core)


def _on_one_core() -> None:
    """Keep PyTorch from dividing a part's sums among threads: how it does depends on their number."""
    import torch

    torch.set_num_threads(1)
