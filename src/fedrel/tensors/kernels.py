"""Whether compiled kernels can be used: they need numba, which is an extra (`fast`)."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os

_log = logging.getLogger(__name__)


@functools.cache
def available() -> bool:
    """Whether numba is installed, and the environment's `FEDREL_KERNELS=off` does not say to do without it.

    Modules of kernels may be imported only where this is true.
    """
    if os.environ.get("FEDREL_KERNELS") == "off" or importlib.util.find_spec("numba") is None:
        return False
    try:
        import numba  # noqa: F401
    except ImportError as error:  # as where it is older than numpy
        _log.warning("numba is installed but does not work, so plain PyTorch is used: %s", error)
        return False
    return True
