"""Kernels: Python functions that numba compiles to machine code, once a processor, and keeps on disk.

numba is an extra (`fast`). Modules of kernels may be imported only where `has_numba` is true.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fedrel.files import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


@functools.cache
def has_numba() -> bool:
    """Whether numba is installed and works, and the environment variable `FEDREL_KERNELS` is not `off`."""
    if os.environ.get("FEDREL_KERNELS") == "off" or importlib.util.find_spec("numba") is None:
        return False
    try:
        import numba  # noqa: F401
    except ImportError as error:  # for example, where it is older than numpy
        _log.warning("numba is installed but does not work, so plain PyTorch is used: %s", error)
        return False
    return True


def kernel(function: Function) -> Function:
    """Compile a function when it is first called. It runs on one thread, without the interpreter's lock.

    `a * b + c` may be rounded once instead of twice. No other rule of float arithmetic is relaxed, so a kernel
    gives the same bits every time, and NaN stays NaN.
    """
    return _compiled(function, no_cpython_wrapper=False)


def inner(function: Function) -> Function:
    """Compile a function that only kernels call; without the wrapper for Python it compiles faster."""
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: Function, **options: bool) -> Function:
    import numba

    _announce_compilation()
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

    numba itself looks only at the file that a kernel is in, and does not notice changes in the files whose
    functions the kernel calls.
    """
    import numba

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


class _Compilation:
    """How long this process has waited for kernels to be compiled; compilations within others count once."""

    def __init__(self) -> None:
        self.seconds, self._running, self._since = 0.0, 0, 0.0
        self._lock = threading.Lock()

    def begins(self) -> None:
        with self._lock:
            if not self._running:
                self._since = time.monotonic()
            self._running += 1

    def ends(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self.seconds += time.monotonic() - self._since


_COMPILATION = _Compilation()


def compilation_seconds() -> float:
    """How long kernels were compiled in this process so far: no method's own time."""
    return _COMPILATION.seconds


@functools.cache
def _announce_compilation() -> None:
    """Let a message appear when the first kernel is compiled: it is the only time that users wait for kernels."""
    from numba.core import event

    class Announcement(event.Listener):  # type: ignore[misc]
        made = False

        def on_start(self, event: Any) -> None:
            """Called before numba compiles anything that it does not find on disk."""
            _COMPILATION.begins()
            ours = event.data["dispatcher"].py_func.__module__.startswith("fedrel.")
            if ours and not self.made:
                self.made = True
                _log.warning("compiling kernels for this processor: fifteen to thirty seconds, once")

        def on_end(self, event: Any) -> None:
            """Nothing is said then."""
            _COMPILATION.ends()

    event.register("numba:compile", Announcement())
