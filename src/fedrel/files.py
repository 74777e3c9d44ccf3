"""Files are written whole or not at all: to a temporary file beside the target, which is then renamed."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    import numpy.typing as npt


_log = logging.getLogger(__name__)

ELSEWHERE = "choose another folder (--out; of `federation run`: --name)"


def _unwritable(path: Path, error: OSError) -> UserError:
    reason = error.strerror or str(error)
    return UserError(f"cannot write: {reason}", file=path, hint="free some space or choose another folder")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, made if need be, for this process; fail if another process holds the lock.

    A folder that is empty in the end is removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        _lock(handle)
    except BlockingIOError as error:
        os.close(handle)
        hint = f"wait until it is done, stop it, or {ELSEWHERE}"
        raise UserError("another process works in this folder", file=folder, hint=hint) from error
    try:
        yield
    finally:
        os.close(handle)
        with suppress(OSError):
            folder.rmdir()  # fails if anything is in it


def _lock(handle: int, attempts: int = 4) -> None:
    """Lock a folder. Whoever only looks whether it is locked holds a shared lock for a moment: try again."""
    import fcntl

    for left in reversed(range(attempts)):
        try:
            # However the process ends, the system releases the lock.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(0.05)


@contextmanager
def locked_in_turn(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; wait as long as another one holds the lock."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def wait_until_unlocked(folder: Path, seconds: float, say: Callable[[str], None]) -> None:
    """Return when no process holds a folder's lock, or after so many seconds; say that it waits, if it does."""
    until, said = time.monotonic() + seconds, False
    while folder.exists() and time.monotonic() < until:
        with suppress(UserError), locked(folder):
            return
        if not said:
            say(f"waiting for the process to end that works in {folder}")
            said = True
        time.sleep(0.2)


@contextmanager
def atomic_file(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`, flushed and renamed to it on success, removed on failure.

    Without `flush`, the file may be lost or empty if the machine itself fails in the next seconds.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from error
    part = Path(name)
    try:
        yield part
        if flush:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """The same for a folder; an existing `path` is kept: another process has written the same content."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield part
        if not path.exists():
            part.chmod(0o755)
            part.rename(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Add a line to a text file and flush it."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise _unwritable(path, error) from error


def write_tensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], about: Mapping[str, str], *, flush: bool = True
) -> None:
    """Write named arrays, with a few strings about them, as a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic_file(path, flush=flush) as part:
        try:
            save_file(dict(tensors), part, metadata=dict(about))
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from error


def cache_folder() -> Path:
    """Where corpora are kept: `FEDREL_CACHE`, else the user's cache, else a folder for this process only."""
    chosen = os.environ.get("FEDREL_CACHE")
    folder = Path(chosen) if chosen else _user_cache() / "fedrel"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _log.warning("cannot keep corpora in %s: %s", folder, error.strerror)
        return Path(_temporary().name)
    return folder


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fedrel-")


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
