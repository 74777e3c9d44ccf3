"""Kernels compiled before they are needed: side by side, each part in a process that fills the cache on disk.

numba compiles under one lock, so threads would take turns. A run starts the processes while it reads its data,
`make` when it sets up an environment.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedrel.files import locked_in_turn
from fedrel.tensors.compiling import ANNOUNCEMENT, has_numba, kernel_folder

_log = logging.getLogger(__name__)


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


def _mark(folder: Path, part: str) -> Path:
    """The file that says that a part is compiled, for this version of numba and this processor."""
    import numba
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

    about = f"{numba.__version__} {get_host_cpu_name()} {sorted(get_host_cpu_features().items())}"
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    return kernel_folder(folder) / f"{part}-{digest}" / "compiled"
