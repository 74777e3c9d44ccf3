"""How a kernel becomes machine code: by numba, once a processor, and kept on disk where that is possible."""

from __future__ import annotations

import functools
import hashlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

from fedrel.files import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


def kernel(function: Function) -> Function:
    """Compile a function when it is first called. It runs on one thread, without the interpreter's lock.

    `a * b + c` may be rounded once instead of twice; nothing else of float arithmetic is given up, so that a
    kernel gives the same bits every time and NaN stays NaN.
    """
    return _compiled(function, no_cpython_wrapper=False)


def inner(function: Function) -> Function:
    """A function that only kernels call, which makes it faster to compile."""
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: Function, **options: bool) -> Function:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_folder(Path(function.__code__.co_filename).parent))
    try:
        compiled: Function = numba.njit(
            nogil=True,
            cache=True,
            error_model="numpy",
            fastmath={"contract"},
            no_cfunc_wrapper=True,
            **options,
        )(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


@functools.cache
def _folder(package: Path) -> Path:
    """A folder for the machine code of one package's kernels, named by the contents of all its files.

    Left to itself, numba looks at the file a kernel is in and does not notice that another one, whose functions
    it calls, has changed.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in sorted(package.glob("*.py")):
        digest.update(source.read_bytes())
    chosen = [Path(numba.config.CACHE_DIR)] if numba.config.CACHE_DIR else []
    for root in [*chosen, package / "__pycache__"]:
        folder = root / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return cache_folder() / f"kernels-{digest.hexdigest()[:16]}"


class _Announcement(event.Listener):  # type: ignore[misc]
    """Says once that kernels are being compiled: the only time that one has to wait for them."""

    def __init__(self) -> None:
        self._made = False

    def on_start(self, event: Any) -> None:
        """Called before numba compiles anything that it does not find on disk."""
        ours = event.data["dispatcher"].py_func.__module__.startswith("fedrel.")
        if ours and not self._made:
            self._made = True
            _log.warning("compiling kernels for this processor: fifteen to thirty seconds, once")

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", _Announcement())
