"""Text files by line, plain or compressed, with every way they can be unreadable told by file and line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from fedrel.errors import UserError

_PARAGRAPH = 1 << 16  # characters: a longer one ends with its line, so that no file need fit in memory


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text, numbered from 1; it may be a .gz, .bz2 or .xz, or a .zip of one file."""
    for number, line in enumerate(_whole_lines(path), 1):
        yield number, line.rstrip("\r\n")


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """What stands between blank lines, with the number of characters before it in the file."""
    start, size = 0, 0
    held: list[str] = []
    for line in _whole_lines(path):
        held.append(line)
        size += len(line)
        if line.isspace() or size >= _PARAGRAPH:
            yield start, "".join(held)
            start, size, held = start + size, 0, []
    yield start, "".join(held)


def stem(path: Path) -> str:
    """A file's name without what says its form and compression: `notes` of `notes.txt.gz`."""
    return Path(path.stem).stem if path.suffix in _OPENERS else path.stem


def _whole_lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with closing(_open(path)) as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except FileNotFoundError as error:
        raise UserError("no such file", file=path, remedy="check the path") from error
    except UnicodeDecodeError as error:
        problem = f"byte {error.object[error.start]:#04x} is not UTF-8 text"
        raise UserError(problem, file=path, line=number, remedy="convert the file to UTF-8") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read after line {number}: {reason}", file=path) from error


def _open(path: Path) -> IO[bytes]:
    file: IO[bytes] = _OPENERS.get(path.suffix, Path.open)(path, "rb")
    return file


def _open_zip(path: Path, _mode: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the member keeps the file open for as long as it needs it
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            problem = f"expected one file in the archive, found {len(members)}"
            raise UserError(problem, file=path, remedy="unpack it and name the file you mean")
        return archive.open(members[0])


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zip": _open_zip,
}
