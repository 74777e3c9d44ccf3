"""PCNN's inner loops as machine code of our own, made by numba when it is installed (the extra `fast`)."""

from __future__ import annotations

import functools
import importlib.util


@functools.cache
def available() -> bool:
    """Whether numba is installed. Nothing here but this function may be imported where it is not."""
    return importlib.util.find_spec("numba") is not None
