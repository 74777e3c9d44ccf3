"""Files are written whole or not at all, and with a checksum by which damage is noticed when they are opened.

A file is written to a temporary one beside its target, which is then renamed. A process that is killed leaves that
behind; `remove_leftovers` finds it by its name and by its lock, which only a living process holds.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    import numpy.typing as npt


_log = logging.getLogger(__name__)

_PART = ".fedrel-part-"  # how the names of temporary files begin, beside what they will become
_SCRATCH = "fedrel-scratch-"  # and those of folders among the system's temporary files
_YOUNG = 60  # seconds for which a temporary file is left alone, locked or not
_CHECKED, _SHA256 = "checked", "sha256"  # what files say about their checksum

ELSEWHERE = "choose another folder (--out; of `federation run`: --name)"


def _unwritable(path: Path, error: OSError) -> UserError:
    reason = error.strerror or str(error)
    return UserError(f"cannot write: {reason}", file=path, hint="free some space or choose another folder")


class InUseError(UserError):
    """Another process works in a folder."""

    def __init__(self, folder: Path) -> None:
        hint = f"wait until it is done, stop it, or {ELSEWHERE}"
        super().__init__("another process works in this folder", file=folder, hint=hint)
        self.folder = folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, made if need be, for this process; `InUseError` if another process holds the lock.

    A new folder is for this user only, and one that is empty in the end is removed. What killed processes left in
    it is removed, too.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        _lock(handle)
    except BlockingIOError as error:
        os.close(handle)
        raise InUseError(folder) from error
    try:
        remove_leftovers(folder, deep=True)
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
    """Lock a folder, made if need be, for this process; wait as long as another one holds the lock."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_in_use(folder: Path) -> bool:
    """Whether a process holds a folder's lock."""
    with suppress(InUseError):
        if folder.exists():
            with locked(folder):
                pass
        return False
    return True


@contextmanager
def atomic_file(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`, flushed and renamed to it on success, removed on failure.

    Without `flush`, the file may be lost or empty if the machine itself fails in the next seconds.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{_PART}{path.name}.")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise _unwritable(path, error) from error
    part = Path(name)
    try:
        yield part
        if flush:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        part.chmod(0o666 & ~_UMASK)
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        os.close(handle)
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """The same for a folder, for this user only; an existing `path` is kept: another process has written it."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{_PART}{path.name}."))
        handle = os.open(part, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield part
        if not path.exists():
            part.rename(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        os.close(handle)
        shutil.rmtree(part, ignore_errors=True)


def remove_leftovers(folder: Path, *, deep: bool = False) -> list[Path]:
    """Remove temporary files and folders that killed processes left in a folder, `deep` also below it.

    One that a process still writes to is locked, and stays; so does what is another user's.
    """
    import fcntl

    removed = []
    parts = (part for name in (_PART, _SCRATCH) for part in _named(folder, f"{name}*", deep=deep))
    for part in sorted(parts):
        with suppress(OSError):  # another process may have removed or renamed it
            about = part.lstat()
            if time.time() - about.st_mtime < _YOUNG or about.st_uid != os.getuid():
                continue
            handle = os.open(part, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if part.is_dir():
                    shutil.rmtree(part)
                else:
                    part.unlink()
                removed.append(part)
            finally:
                os.close(handle)
    return removed


def _named(folder: Path, pattern: str, *, deep: bool) -> Iterator[Path]:
    return folder.rglob(pattern) if deep else folder.glob(pattern)


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder of this process, removed when it is left; what killed ones left beside it is removed, too.

    It is in `beside`, for what is to stay on one disk, else among the system's temporary files.
    """

    def __init__(self, beside: Path | None = None) -> None:
        import fcntl

        _tidied(beside or Path(tempfile.gettempdir()))
        super().__init__(prefix=_SCRATCH if beside is None else _PART, dir=beside)
        self._handle: int | None = os.open(self.name, os.O_RDONLY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        """Remove it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        super().cleanup()


@functools.cache
def _tidied(folder: Path) -> None:
    """Remove what killed processes left in a folder, once a process."""
    remove_leftovers(folder)


def _umask() -> int:
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    return mask


_UMASK = _umask()


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
    """Write named arrays, with a few strings about them, as a safetensors file that has its own SHA-256."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {**about, _CHECKED: _SHA256}
    with atomic_file(path, flush=flush) as part:
        try:
            save_file(dict(tensors), part, metadata={**whole, _SHA256: _tensor_digest(tensors, whole)})
            _order_metadata(part)
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from error


def _order_metadata(path: Path) -> None:
    """Sort what a safetensors file says about itself: the library writes it in any order, so equal files differ."""
    with path.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:  # spaces fill the rest, as in what the library writes
            file.seek(8)
            file.write(text.ljust(size))


def read_tensors(path: Path, what: str, hint: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The arrays that `write_tensors` wrote, and the strings about them; a `UserError` if the file is damaged.

    `what` says what the file should be, `hint` what to do if it is not. Files of version 0.1 have no checksum.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            about = dict(opened.metadata() or {})
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (
        SafetensorError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        ArithmeticError,
        MemoryError,
    ) as error:
        raise UserError(f"is not {what}: {error}", file=path, hint=hint) from error
    if _CHECKED in about or _SHA256 in about:  # one bit cannot take both away
        stated = about.pop(_SHA256, None)
        if stated != _tensor_digest(tensors, about):
            problem = f"is damaged: {what} with another SHA-256 than it was written with"
            raise UserError(problem, file=path, hint=hint)
        about.pop(_CHECKED, None)
    return tensors, about


def _tensor_digest(tensors: Mapping[str, npt.NDArray[Any]], about: Mapping[str, str]) -> str:
    import numpy as np

    names = sorted(tensors)
    shapes = [[name, tensors[name].dtype.str, list(tensors[name].shape)] for name in names]
    whole = hashlib.sha256(json.dumps([sorted(about.items()), shapes]).encode())
    for name in names:
        whole.update(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
    return whole.hexdigest()


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON fields with the SHA-256 of all of them, for files that `unsealed` reads."""
    return {**fields, _CHECKED: _SHA256, _SHA256: _json_digest({**fields, _CHECKED: _SHA256})}


def unsealed(text: str, path: Path, what: str, hint: str) -> dict[str, Any]:
    """The fields of a JSON file; a `UserError` if it is damaged. One without a seal is of an older version."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("expected a JSON object")
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"is not {what}, or is damaged: {error}", file=path, hint=hint) from error
    return without_seal(fields, path, what, hint)


def without_seal(fields: dict[str, Any], path: Path, what: str, hint: str) -> dict[str, Any]:
    """The fields of a JSON file that may have a seal, without it; a `UserError` if they are not those sealed."""
    if _CHECKED in fields or _SHA256 in fields:  # one bit cannot take both away
        stated = fields.pop(_SHA256, None)
        if stated != _json_digest(fields):
            problem = f"is damaged: {what} with another SHA-256 than it was written with"
            raise UserError(problem, file=path, hint=hint)
        fields.pop(_CHECKED, None)
    return fields


def read_sealed(path: Path, what: str, hint: str) -> dict[str, Any]:
    """The fields of a JSON file, as `unsealed` reads them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"is not {what}, or is damaged: {reason}", file=path, hint=hint) from error
    return unsealed(text, path, what, hint)


def _json_digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """Where corpora are kept: `FEDREL_CACHE`, else the user's cache, else a folder for this process only."""
    chosen = os.environ.get("FEDREL_CACHE")
    folder = Path(chosen) if chosen else _user_cache() / "fedrel"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _log.warning("cannot keep corpora in %s: %s", folder, error.strerror)
        return Path(_temporary().name)
    _tidied(folder)
    return folder


@functools.cache
def _temporary() -> ScratchFolder:
    return ScratchFolder()


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
