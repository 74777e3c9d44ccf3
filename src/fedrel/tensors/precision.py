"""The precision of matrix products: float32 or bfloat16, as asked for, or whichever this machine is faster in.

A processor without bfloat16 instructions emulates them, many times slower than it multiplies in float32. So `auto`
asks the processor and then measures, once a machine.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from fedrel.files import cache_folder, write_text

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
GAIN = 1.2  # how many times as fast bfloat16 must be for `auto` to choose it

_FILE = "precision.json"  # in the cache: the measured gain, by processor and version of PyTorch
_SHAPE = (512, 384, 1536)  # a small encoder's feed-forward network on a batch of sentences
_TURNS = 5
_AMPERE = (8, 0)  # the first CUDA capability with bfloat16

_log = logging.getLogger(__name__)


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
