"""The files of a corpus: a file a column, mapped into memory, and an index with their sizes and checksums.

A checksum is XXH3 with 128 bits: it finds damage at the speed of memory, and no forgery, which whoever can write to
the folder could make anyway. Columns are compared with it once a process.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.errors import UserError
from fedrel.files import read_sealed, sealed, write_text

_SUMS, _SUMS_FILE = "xxh3_128", "checksums.json"
_AT_ONCE = 1 << 24  # bytes that are summed in one call
_verified: dict[Path, tuple[int, ...]] = {}  # the files that this process has compared, as they were then


def column_path(folder: Path, name: str) -> Path:
    """The file of a column."""
    return folder / f"{name}.bin"


def mapped(path: Path, code: str, width: int, size: int) -> NDArray[Any]:
    """A column of numbers, `width` a row; a `ValueError` if the file has another size than `size`."""
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, expected {size}")
    flat = np.frombuffer(_content(path), code)
    return flat if width == 1 else flat.reshape(-1, width)


def write_index(index: Path, names: Collection[str], about: Mapping[str, Any]) -> None:
    """Write the index of a folder whose columns are complete; `about` says what else it holds."""
    paths = {name: column_path(index.parent, name) for name in names}
    fields = {
        **about,
        "bytes": {name: path.stat().st_size for name, path in paths.items()},
        _SUMS: {name: checksum(path) for name, path in paths.items()},
    }
    index.write_text(json.dumps(sealed(fields), indent=1), encoding="utf-8")


def fingerprint(folder: Path, names: Iterable[str], start: str, later: Collection[str]) -> str:
    """The SHA-256 over all columns.

    A column that came later counts only if it says something: the fingerprints of other corpora stay as they were.
    """
    whole = hashlib.sha256(start.encode())
    for name in names:
        path = column_path(folder, name)
        if name not in later or np.fromfile(path, np.uint8).any():
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def verify(folder: Path, names: Iterable[str], index: Mapping[str, Any], whole: Callable[[], str]) -> None:
    """Compare the columns with their checksums, once a process; a `ValueError` names one that differs.

    An index of version 0.1 has no checksums: the columns are compared with the fingerprint, which `whole` computes
    and which takes longer.
    """
    place = folder.resolve()
    paths = {column_path(place, name): name for name in names}
    now = {path: _state(path) for path in paths}
    new = [path for path, state in now.items() if _verified.get(path) != state]
    if _SUMS in index:
        for path in new:
            if checksum(path) != index[_SUMS][paths[path]]:
                raise ValueError(f"the content of {path.name} is not what was written")
    elif new and whole() != index["fingerprint"]:
        raise ValueError("the content of its columns is not what was written")
    _verified.update(now)


def write_sums(folder: Path) -> None:
    """Write the checksums of all files that are directly in a folder, for `check_sums`."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != _SUMS_FILE)
    sums = {path.name: checksum(path) for path in files}
    write_text(folder / _SUMS_FILE, json.dumps(sealed({_SUMS: sums}), indent=1))


def check_sums(folder: Path, hint: str) -> None:
    """Compare files with what `write_sums` wrote, once a process; a `UserError` names one that differs.

    Folders of version 0.1 have no such list, and are taken as they are.
    """
    listed = folder / _SUMS_FILE
    if not listed.exists():
        return
    for name, expected in read_sealed(listed, "a list of checksums", hint).get(_SUMS, {}).items():
        path = (folder / name).resolve()
        if not path.is_file():
            raise UserError("is missing", file=path, hint=hint)
        if _verified.get(path) != (state := _state(path)):
            if checksum(path) != expected:
                raise UserError("is damaged: its content is not what was written", file=path, hint=hint)
            _verified[path] = state


def checksum(path: Path) -> str:
    """The XXH3 of a file, 128 bits."""
    import xxhash

    whole, content = xxhash.xxh3_128(), memoryview(_content(path))
    for start in range(0, len(content), _AT_ONCE):
        whole.update(content[start : start + _AT_ONCE])
    return str(whole.hexdigest())


def _content(path: Path) -> mmap.mmap | bytes:
    """A file's bytes, mapped into memory; a file of none cannot be. Unlike `np.memmap`, it looks up no path."""
    with path.open("rb") as file:
        empty = not path.stat().st_size
        return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _state(path: Path) -> tuple[int, ...]:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns
