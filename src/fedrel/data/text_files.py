"""Text files by line, plain or compressed; whatever makes one unreadable is reported with file and line.

A path may go through an archive: `REdata.zip/GAD/1/train.tsv` is that file in `REdata.zip`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from fedrel.errors import UserError, nearest

_DECOMPRESSORS: dict[str, Callable[[IO[bytes]], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LONGEST = 1 << 29  # bytes of a line; DocRED's files of some hundred megabytes are one
_GROWTH, _SMALL = 200, 1 << 26  # a file may grow so many times when it is decompressed, or to so many bytes
_PARAGRAPH = (
    1 << 16
)  # characters; a longer paragraph is cut at the end of a line, so that no file must fit in memory


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text, numbered from 1; it may be a .gz, .bz2 or .xz, or a .zip of one file."""
    for number, line in enumerate(_whole_lines(path), 1):
        yield number, line.rstrip("\r\n")


def byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The same lines as `lines` gives, as they are stored, with what ends them.

    They are for readers that decode them faster than `lines` does; what is no UTF-8 must be left to `decoded`.
    """
    number = 0
    try:
        with stored(path) as raw, _decompressed(raw, path) as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    problem = f"has more than {LONGEST:,} bytes"
                    raise UserError(problem, file=path, line=number, hint="put line ends between records")
                yield number, line
    except UNREADABLE as error:
        raise unreadable(path, error, f" after line {number}") from error


def decoded(line: bytes, number: int, path: Path) -> str:
    """The text of a line, without what ends it; a `UserError` if it is not UTF-8."""
    return _decoded(line, number, path).rstrip("\r\n")


def whole_text(path: Path) -> str:
    """The text of a file as it is, with its line ends."""
    return "".join(_whole_lines(path))


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """The text between blank lines, with the number of characters before it in the file."""
    start, size = 0, 0
    held: list[str] = []
    for line in _whole_lines(path):
        for part in pieces(line, _PARAGRAPH):
            held.append(part)
            size += len(part)
            if size >= _PARAGRAPH or part.isspace():
                yield start, "".join(held)
                start, size, held = start + size, 0, []
    yield start, "".join(held)


def pieces(text: str, limit: int) -> Iterator[str]:
    """The text in parts of at most so many characters, cut after white space where there is some."""
    start = 0
    while len(text) - start > limit:
        space = max(text.rfind(" ", start, start + limit), text.rfind("\t", start, start + limit))
        end = space + 1 if space >= start else start + limit
        yield text[start:end]
        start = end
    yield text[start:]


def stem(path: Path) -> str:
    """A file's name without the suffixes of its format and compression: `notes` of `notes.txt.gz`."""
    return Path(path.stem).stem if path.suffix in {".zip", *_DECOMPRESSORS} else path.stem


def uncompressed(path: Path) -> Path:
    """A path without the suffix of its compression: `train.txt` of `train.txt.xz`."""
    return path.with_suffix("") if path.suffix in _DECOMPRESSORS else path


def content(path: Path) -> IO[bytes]:
    """A file's bytes, decompressed."""
    return _decompressed(stored(path), path)


def there(path: Path) -> bool:
    """Whether a path leads to a file or folder, or into an archive."""
    return path.exists() or any(one.suffix == ".zip" and one.is_file() for one in path.parents)


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, hidden ones left out, in the order of their paths."""
    if not folder.is_dir():
        raise UserError(
            "expected a folder", file=folder, hint="check the path; an archive must be unpacked first"
        )
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = (path for path in found if not any(part.startswith(".") for part in path.parts))
    return [folder / path for path in sorted(visible, key=Path.as_posix)]


def stored(path: Path) -> IO[bytes]:
    """A file's bytes as they are stored, compressed or not; for a path through an archive, the member's."""
    for archive in path.parents:
        if archive.suffix == ".zip" and archive.is_file():
            return _member(archive, path.relative_to(archive).as_posix())
    return path.open("rb")


def unreadable(path: Path, error: Exception, after: str = "") -> UserError:
    """The `UserError` for an exception that opening or reading the file raised."""
    if isinstance(error, FileNotFoundError):
        return UserError("no such file", file=path, hint="check the path")
    reason = getattr(error, "strerror", None) or error
    hint = "if that is right, decompress it yourself" if isinstance(error, _GrewError) else ""
    return UserError(f"cannot read{after}: {reason}", file=path, hint=hint)


# What reading files and archives can raise; zipfile raises RuntimeError for encrypted members.
UNREADABLE = (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def _whole_lines(path: Path) -> Iterator[str]:
    for number, line in byte_lines(path):
        yield _decoded(line, number, path)


def _decoded(line: bytes, number: int, path: Path) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte {error.object[error.start]:#04x} is not UTF-8 text"
        raise UserError(problem, file=path, line=number, hint="convert the file to UTF-8") from error


def _decompressed(raw: IO[bytes], path: Path) -> IO[bytes]:
    if path.suffix == ".zip":
        return _only_member(raw, path)
    if path.suffix not in _DECOMPRESSORS:
        return raw
    counted = _Counted(raw)
    return _bounded(_DECOMPRESSORS[path.suffix](io.BufferedReader(counted)), lambda: counted.read_so_far)


def _bounded(file: Any, consumed: Callable[[], int]) -> IO[bytes]:
    """A decompressed file that cannot fill the memory: text grows tenfold, hardly more than it.

    `consumed` tells how many compressed bytes were read.
    """
    return cast(IO[bytes], io.BufferedReader(_Bounded(file, consumed), 1 << 17))


class _GrewError(OSError):
    """A file that would fill the memory."""


class _Counted(io.RawIOBase):
    """Passes on what another file reads, and counts it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.read_so_far = file, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As `io.RawIOBase` says."""
        block = self._file.read(len(buffer))
        self.read_so_far += len(block)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class _Bounded(_Counted):
    """The same, until it is more than compressed text can have been, which is a `_GrewError`."""

    def __init__(self, file: IO[bytes], consumed: Callable[[], int]) -> None:
        super().__init__(file)
        self._consumed = consumed

    def readinto(self, buffer: Any) -> int:
        """As `io.RawIOBase` says."""
        size = super().readinto(buffer)
        if self.read_so_far > max(_SMALL, _GROWTH * self._consumed()):
            raise _GrewError(
                f"it grows more than {_GROWTH} times when it is decompressed, as text never does"
            )
        return size


def _only_member(raw: IO[bytes], path: Path) -> IO[bytes]:
    with zipfile.ZipFile(raw) as archive:  # the member can be read on after its archive is closed
        members = _members(archive)
        if len(members) != 1:
            problem = f"expected one file in the archive, found {len(members)}"
            raise UserError(problem, file=path, hint=f"name the one you mean, as {path.name}/FILE")
        return _of_archive(archive, members[0])


def _member(archive: Path, name: str) -> IO[bytes]:
    with zipfile.ZipFile(archive) as content:
        members = _members(content)
        if name not in members:
            raise UserError(f"no file {name!r} in the archive", file=archive, hint=nearest(name, members))
        return _of_archive(content, name)


def _of_archive(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    size = archive.getinfo(name).compress_size
    return _bounded(archive.open(name), lambda: size)


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if not name.endswith("/")]
