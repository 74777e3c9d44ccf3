"""Inner loops as machine code of our own, made by numba when it is installed (the extra `fast`)."""

from __future__ import annotations

import functools
import importlib.util
import os


@functools.cache
def available() -> bool:
    """Whether numba is installed, and the environment's `FEDREL_KERNELS=off` does not say to do without it.

    Nothing here but this function may be imported where it is not.
    """
    return os.environ.get("FEDREL_KERNELS") != "off" and importlib.util.find_spec("numba") is not None
