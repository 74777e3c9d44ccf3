"""Kernels: Python functions that numba compiles to machine code, once a processor, and keeps on disk.

numba is an extra (`fast`). Modules of kernels may be imported only where `has_numba` is true.

Kernels can be compiled before they are needed: side by side, each part in a process that fills the cache on disk.
numba compiles under one lock, so threads would take turns. A run starts the processes while it reads its data,
`make` when it sets up an environment.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.files import cache_folder, locked_in_turn

Function = TypeVar("Function", bound=Callable[..., Any])
Number = TypeVar("Number", bound=np.generic)
ANNOUNCEMENT = "compiling kernels for this processor: ten to thirty seconds, once"
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
    """Compile a function when it is first called, and keep its machine code on disk.

    It runs on one thread, without the interpreter's lock. `a * b + c` may be rounded once instead of twice. No
    other rule of float arithmetic is relaxed, so a kernel gives the same bits every time, and NaN stays NaN.
    It makes no arrays (`allocating_kernel`): references to arrays are not counted in it, which is a third of the
    instructions that LLVM would have to work on.
    """
    return _kept(function, _nrt=False)


def allocating_kernel(function: Function) -> Function:
    """A kernel that makes arrays and counts references to them; what it calls must not return any."""
    return _kept(function)


def _kept(function: Function, **options: bool) -> Function:
    import numba

    _follow_compilation()
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(kernel_folder(Path(function.__code__.co_filename).parent))
    try:
        compiled = _compiled(function, cache=True, **options)
    finally:
        numba.config.CACHE_DIR = before
    _KERNELS.add(compiled)
    return compiled


def read_only(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """A view that may only be read: for arrays that may be written, numba would compile a kernel once more."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def inner(function: Function) -> Function:
    """Compile a function as a part of the kernels that call it: it is not kept for itself, and makes no arrays."""
    return _compiled(function, no_cpython_wrapper=True, _nrt=False)


def _compiled(function: Function, **options: bool) -> Function:
    import numba

    compiled: Function = numba.njit(
        nogil=True, error_model="numpy", fastmath={"contract"}, no_cfunc_wrapper=True, **options
    )(function)
    return compiled


@functools.cache
def kernel_folder(package: Path) -> Path:
    """A folder for the machine code of one package's kernels, named by the contents of all its files and of these.

    numba itself looks only at the file that a kernel is in, and does not notice changes in the files whose
    functions the kernel calls.
    """
    import numba

    digest = hashlib.sha256()
    for source in (*sorted(Path(__file__).parent.glob("*.py")), *sorted(package.glob("*.py"))):
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


_KERNELS: set[Any] = set()


_SPENT = [0.0]  # seconds, of this process


def compilation_seconds() -> float:
    """How long kernels were compiled in this process so far: no method's own time."""
    return _SPENT[0]


@contextmanager
def compiled_meanwhile(module: str, folder: Path, parts: Sequence[str]) -> Iterator[None]:
    """Let processes compile the parts that are not on disk yet, while this one does what is in the block.

    At its end, wait for them. `module` is what they run; its kernels are in `folder`.
    """
    missing = [part for part in parts if not _mark(folder, part).exists()] if has_numba() else []
    if missing:
        _log.warning(ANNOUNCEMENT)
    running = [
        subprocess.Popen([sys.executable, "-P", "-m", module, part], stdin=subprocess.DEVNULL)
        for part in missing
    ]
    try:
        yield
    except BaseException:
        for process in running:
            process.terminate()
        raise
    finally:
        for process in running:
            process.wait()


def compile_parts(folder: Path, parts: Mapping[str, Callable[[], object]], names: Sequence[str]) -> None:
    """In such a process: call what compiles these parts, or wait for another process that does."""
    logging.getLogger("fedrel").setLevel(logging.ERROR)  # whoever started it has said so
    gc.disable()  # of the millions of small objects that compiling makes, few die before the process does
    for name in names:
        mark = _mark(folder, name)
        mark.parent.mkdir(parents=True, exist_ok=True)
        with locked_in_turn(mark.parent):
            if not mark.exists():
                parts[name]()
                mark.touch()


@functools.cache
def _follow_compilation() -> None:
    """While numba compiles: say so once, and optimise each function once, as a part of the kernel it is in.

    Compiling is the only time that users wait for kernels. By default numba optimises a function that kernels call
    by itself, then again as a part of each function that calls it, level by level: most of the time goes there.
    """
    import numba
    from numba.core import event

    from fedrel.tensors.kernel_parts import KernelLibrary, PartLibrary, choose_library

    optimised = numba.config.OPT

    class Compilation(event.Listener):  # type: ignore[misc]
        announced, since = False, 0.0

        def __init__(self) -> None:
            self.running: list[Any] = []  # the function that is compiled, and those that wait for it

        def on_start(self, event: Any) -> None:
            """Called before numba compiles anything that it does not find on disk, under its lock."""
            self.running.append(event.data["dispatcher"])
            if len(self.running) == 1:
                self.since = time.monotonic()
                if self._within_kernel() and not self.announced:
                    self.announced = True
                    _log.warning(ANNOUNCEMENT)
            self._choose()

        def on_end(self, event: Any) -> None:
            """Called after that."""
            self.running.pop()
            self._choose()
            if not self.running:
                _SPENT[0] += time.monotonic() - self.since

        def _within_kernel(self) -> bool:
            return bool(self.running) and self.running[0] in _KERNELS

        def _choose(self) -> None:
            """Set how numba compiles the function whose turn it is: a kernel, a part of one, or anything else."""
            numba.config.OPT, library = optimised, None
            if self._within_kernel():
                library = KernelLibrary
                function = self.running[-1]
                if function is not self.running[0] and function.targetoptions.get("no_cpython_wrapper"):
                    numba.config.OPT, library = type(optimised)(0), PartLibrary
            choose_library(library)

    event.register("numba:compile", Compilation())


def _mark(folder: Path, part: str) -> Path:
    """The file that says that a part is compiled, for this version of numba and this processor."""
    import numba
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

    about = f"{numba.__version__} {get_host_cpu_name()} {sorted(get_host_cpu_features().items())}"
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    return kernel_folder(folder) / f"{part}-{digest}" / "compiled"
