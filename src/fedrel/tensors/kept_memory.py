"""Freed memory that stays with the process, for training that frees and takes the same amounts in every step.

By default glibc gives large arrays back to the system as soon as they are freed. The next step takes them again,
page by page, each of which the system fills with zeros first.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's numbers, of malloc.h
_LARGEST_MAPPED = 32 << 20  # bytes; what glibc accepts at most
_FREE_AT_TOP = 1 << 30
_AT_ONCE = 64 << 20


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
