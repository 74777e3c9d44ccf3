"""Two cores for one site: work that always falls into the same parts, done side by side where cores are free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")

_here = threading.local()


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
    """Do all tasks and give their results in order, on other threads as well if `cores` allows it.

    Tasks depend on nothing that another one does, so that the result is the same either way.
    """
    if len(tasks) == 1 or getattr(_here, "cores", 1) == 1:
        return [task() for task in tasks]
    others = [_pool().submit(task) for task in tasks[1:]]
    return [tasks[0](), *(other.result() for other in others)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "fedrel-part", initializer=_on_one_core)


def _on_one_core() -> None:
    """Keep PyTorch from splitting a part's sums over threads: how it does depends on their number."""
    torch.set_num_threads(1)
