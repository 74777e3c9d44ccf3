"""What training makes of the machine: its cores, the precision of its matrix products, and its memory.

Several cores for one site: work that always falls into the same parts, done side by side where cores are free.
Engines say how many cores a site's work may use; the work itself says how it is divided. So a site comes to the
same bits on one core and on several.

Matrix products are in float32 or bfloat16, as asked for, or in whichever this machine is faster in. A processor
without bfloat16 instructions emulates them, many times slower than it multiplies in float32. So `auto` asks the
processor and then measures, once a machine.

Freed memory stays with the process, for training that frees and takes the same amounts in every step. By default
glibc gives large arrays back to the system as soon as they are freed. The next step takes them again, page by page,
each of which the system fills with zeros first.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from fedrel.files import cache_folder, write_text

Result = TypeVar("Result")
PARTS = 2  # that a batch is divided into, however many cores there are
_here = threading.local()
AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
GAIN = 1.2  # how many times as fast bfloat16 must be for `auto` to choose it
_FILE = "precision.json"  # in the cache: the measured gain, by processor and version of PyTorch
_SHAPE = (512, 384, 1536)  # a small encoder's feed-forward network on a batch of sentences
_TURNS = 5
_AMPERE = (8, 0)  # the first CUDA capability with bfloat16
_log = logging.getLogger(__name__)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's numbers, of malloc.h
_LARGEST_MAPPED = 32 << 20  # bytes; what glibc accepts at most
_FREE_AT_TOP = 1 << 30
_AT_ONCE = 64 << 20


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


def resolve(asked: str, device: str = "cpu") -> str:
    """The precision for what a config asks for: itself, or what `auto` comes to on this machine."""
    if asked != AUTO:
        return asked
    return BFLOAT16 if has_bfloat16(device) and gain(device) >= GAIN else FLOAT32


def warn_if_emulated(precision: str, device: str = "cpu") -> None:
    """Say so where bfloat16 was asked for and the processor does not have it."""
    if precision == BFLOAT16 and not has_bfloat16(device):
        _log.warning(
            "training.precision is bfloat16, but this processor has no instructions for it: they are emulated, "
            "up to 50 times slower than float32"
        )


@cache
def has_bfloat16(device: str = "cpu") -> bool:
    """Whether a device has instructions for bfloat16 (AVX512-BF16, AMX, Arm's; CUDA from capability 8.0)."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= _AMPERE
    if device != "cpu":
        return False
    flags = _about_processor().get("flags", "").split() + _about_processor().get("Features", "").split()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def gain(device: str = "cpu") -> float:
    """How many times as fast bfloat16 products are as float32's: measured once, then read from the cache."""
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else processor()
    key, file = f"{name}, torch {torch.__version__}", cache_folder() / _FILE
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text(encoding="utf-8"))
    if key not in known:
        known[key] = round(_measure(device), 3)
        write_text(file, json.dumps(known, indent=1))
    return known[key]


@cache
def processor() -> str:
    """What kind of processor this is."""
    about = _about_processor()
    name = about.get("model name") or platform.processor() or "unknown processor"
    kind = [about[key] for key in ("cpu family", "model") if key in about]
    return " ".join([platform.machine(), name, *(["family/model", "/".join(kind)] if kind else [])])


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to do that in this process; returns whether it does. Other systems stay as they are."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (musl has none)
        mallopt = library.mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    settings = {_MMAP_THRESHOLD: _LARGEST_MAPPED, _TRIM_THRESHOLD: _FREE_AT_TOP, _TOP_PAD: _AT_ONCE}
    taken = [mallopt(number, value) for number, value in settings.items()]
    return all(taken)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "fedrel-part", initializer=_on_one_core)


def _on_one_core() -> None:
    """Keep PyTorch from dividing a part's sums among threads: how it does depends on their number."""
    import torch

    torch.set_num_threads(1)


def _measure(device: str) -> float:
    """The two precisions take turns; the best of each counts, so that other work on the machine disturbs little."""
    import torch

    rows, inner, columns = _SHAPE

    def product(dtype: torch.dtype) -> Callable[[], object]:
        left = torch.ones((rows, inner), dtype=dtype, device=device)
        right = torch.ones((inner, columns), dtype=dtype, device=device)

        def run() -> None:
            (left @ right)[0, 0].item()  # which waits for the device

        run()
        return run

    runs = product(torch.float32), product(torch.bfloat16)
    best = [float("inf"), float("inf")]
    for _ in range(_TURNS):
        for which, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[which] = min(best[which], time.perf_counter() - begin)
    return best[0] / best[1]


@cache
def _about_processor() -> dict[str, str]:
    """What Linux says of the first processor; elsewhere nothing."""
    about: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            about[name.strip()] = value.strip()
    return about
