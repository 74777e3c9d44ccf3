"""The record of what left a site: an append-only file in which every line vouches for all lines before it.

A line is on the disk before the answer it describes may leave. It holds none of the answer's numbers, only what
kind of thing it was, how large, and its SHA-256. A line's `chain` is the SHA-256 of the `chain` before it and of
its own bytes, so a byte that changes anywhere no longer fits. Beside the file lies its head, how long it is and how
it ends, so that lines cut off at the end are missed too.

A process that dies while it writes leaves a torn line. Nothing left the site then. The torn bytes stay where they
are, and the next line vouches for them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedrel.errors import UserError
from fedrel.files import write_text

if TYPE_CHECKING:
    from fedrel.federation.messages import Arrays


BEGINNING = hashlib.sha256(b"fedrel audit 1").hexdigest()  # the chain before the first line
_OPEN, _BETWEEN, _CLOSE = b'{"chain":"', b'","entry":', b"}"
_BODY = len(_OPEN) + len(BEGINNING) + len(_BETWEEN)  # where a line's own bytes begin


@dataclass(frozen=True, slots=True)
class Field:
    """One array of an answer, without its numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer of a site."""

    time: str  # UTC
    run: str  # the experiment, by its digest
    round: int
    phase: str
    message: str
    fields: tuple[Field, ...]
    digest: str  # SHA-256 of names, types, shapes and numbers
    note: str = ""  # of a refusal, why; for the site's own eyes

    @property
    def bytes(self) -> int:
        """The size of the numbers."""
        return sum(field.bytes for field in self.fields)


@dataclass(frozen=True, slots=True)
class Line:
    """An entry where it stands in the file, and the chain there."""

    number: int  # from 1
    chain: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Break:
    """The first line that does not fit."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What a reading of the whole file found."""

    lines: tuple[Line, ...]
    torn: tuple[int, ...]  # the numbers of lines that were begun and never finished
    broken: Break | None
    size: int  # bytes, up to the end of the last line that fits

    @property
    def chain(self) -> str:
        """How the record ends: whoever notes it can see later that nothing before it has changed."""
        return self.lines[-1].chain if self.lines else BEGINNING


def describe(run: str, round_: int, phase: str, message: str, arrays: Arrays, note: str = "") -> Entry:
    """What the record says of an answer that is about to leave."""
    whole = hashlib.sha256()
    fields = []
    for name, array in sorted(arrays.items()):
        fields.append(Field(name, str(array.dtype), array.shape, array.nbytes))
        whole.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        whole.update(array.tobytes())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Entry(now, run, round_, phase, message, tuple(fields), whole.hexdigest(), note)


def append(path: Path, entry: Entry) -> None:
    """Add a line; on return it is on the disk. A record that is broken takes no more lines."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file, _locked(file, fcntl.LOCK_EX):
            end = _end(path)
            body = json.dumps(asdict(entry) | end.torn, separators=(",", ":")).encode()
            chain = _chained(end.chain, body)
            line = _OPEN + chain.encode() + _BETWEEN + body + _CLOSE + b"\n"
            file.write(line if end.newline else b"\n" + line)
            os.fsync(file.fileno())
            head = {"lines": end.lines + 1, "bytes": path.stat().st_size, "chain": chain}
            write_text(_head_path(path), json.dumps(head))
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror}", file=path) from error


def sound(path: Path) -> Audit:
    """What `check` finds of a record that is not broken; `UserError` if it is."""
    audit = check(path)
    _refuse_broken(audit, path)
    return audit


def check(path: Path) -> Audit:
    """Read a record from its first line to its last and see whether each fits."""
    try:
        with path.open("rb") as file, _locked(file, fcntl.LOCK_SH):
            return _check(file.read(), _read_head(path))
    except FileNotFoundError:
        return _check(b"", _read_head(path))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from error


@dataclass(frozen=True, slots=True)
class _Head:
    """How long the record was after the last line that was written whole, and the chain there."""

    lines: int
    bytes: int
    chain: str


@dataclass(frozen=True, slots=True)
class _End:
    """What the next line goes on from."""

    lines: int
    chain: str
    newline: bool = True  # false: it must begin with one
    torn: dict[str, Any] = field(default_factory=dict)  # what it must vouch for, if there is anything


def _check(data: bytes, head: _Head | None) -> Audit:
    lines: list[Line] = []
    torn: list[int] = []
    loose: list[int] = []  # the lines since the last good one that none vouches for yet
    chain, good, offset, number = BEGINNING, 0, 0, 0
    met_head = head is None
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), 1):
        line = _parse(raw, number, chain, _torn(data[good : offset - 1]) if loose else {})
        offset = min(offset + len(raw) + 1, len(data))  # of the last line, the newline alone may be missing
        if line is None:
            loose.append(number)
            continue
        lines.append(line)
        torn += loose
        chain, good, loose = line.chain, offset, []
        met_head = met_head or head == _Head(len(lines), good, chain)
    broken = None
    torn_bytes = head.bytes <= good if head else len(loose) == 1 and not data.endswith(b"\n")
    if loose and not torn_bytes:
        broken = Break(loose[0], "was changed, or one before it is missing")
    elif head is None and len(lines) > 1:
        broken = Break(1, "stands in a record whose head is missing")
    elif not met_head:
        broken = Break(number + 1, "is missing: the record was longer")
    return Audit(tuple(lines), tuple(torn if broken else torn + loose), broken, good)


def _parse(raw: bytes, number: int, chain: str, torn: dict[str, Any]) -> Line | None:
    """The line, if it goes on from this chain and vouches for just these torn bytes."""
    body = raw[_BODY : -len(_CLOSE)]
    new = _chained(chain, body)
    if raw != _OPEN + new.encode() + _BETWEEN + body + _CLOSE:
        return None
    try:
        content = json.loads(body)
        if content.pop("torn", None) != torn.get("torn"):
            return None
        fields = tuple(Field(**field | {"shape": tuple(field["shape"])}) for field in content.pop("fields"))
        return Line(number, new, Entry(**content, fields=fields))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _chained(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + body).hexdigest()


def _torn(fragment: bytes) -> dict[str, Any]:
    return {"torn": {"bytes": len(fragment), "sha256": hashlib.sha256(fragment).hexdigest()}}


def _end(path: Path) -> _End:
    """Where the record stands. If it is as its head says, its lines need not be read."""
    head, size = _read_head(path), path.stat().st_size
    if head is not None and head.bytes == size:
        return _End(head.lines, head.chain)
    data = path.read_bytes()
    audit = _check(data, head)
    _refuse_broken(audit, path)
    fragment = data[audit.size :]
    if fragment:
        return _End(len(audit.lines), audit.chain, newline=False, torn=_torn(fragment))
    return _End(len(audit.lines), audit.chain, newline=not data or data.endswith(b"\n"))


def _refuse_broken(audit: Audit, path: Path) -> None:
    if audit.broken:
        problem = f"line {audit.broken.line} {audit.broken.reason}: nothing more is recorded, nothing leaves"
        hint = "keep the file for whoever must look into it, and move it away"
        raise UserError(problem, file=path, hint=hint)


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


def _read_head(path: Path) -> _Head | None:
    try:
        return _Head(**json.loads(_head_path(path).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return _Head(-1, 1 << 62, "")  # not one of ours: no line can fit it


@contextmanager
def _locked(file: IO[bytes], kind: int) -> Iterator[None]:
    fcntl.flock(file, kind)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
