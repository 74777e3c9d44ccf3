"""The record of what left a site: an append-only file in which a change to any earlier line can be seen.

A line is on the disk before the answer that it describes may leave. It holds none of the answer's numbers, only
their kind, names, shapes and SHA-256, what was asked and which rules were in force. A line's `chain` is the
SHA-256 of the `chain` before it and of its own bytes, so a changed byte anywhere breaks the chain. The site's key
signs every chain value: nobody without it can write another chain. Beside the file lies its head, `audit.head`: the
number of lines, the length and the last chain. It shows if lines were cut off at the end; `record_check` knows
more.

A process that dies while it writes leaves an incomplete ("torn") line. Nothing left the site then. The torn
bytes stay where they are, and the next line includes their SHA-256.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedrel.errors import UserError
from fedrel.federation.messages import Arrays, hash_arrays
from fedrel.files import write_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

BEGINNING = hashlib.sha256(b"fedrel audit 1").hexdigest()  # the chain before the first line
_OPEN, _BETWEEN, _CLOSE, _SIGNED = b'{"chain":"', b'","entry":', b"}", b',"signed":"'
_HEXADECIMAL = re.compile(rb',"signed":"[0-9a-f]+"')
_BODY = len(_OPEN) + len(BEGINNING) + len(_BETWEEN)  # where a line's own bytes begin


@dataclass(frozen=True, slots=True)
class Field:
    """One array of an answer, without its numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What came with a request, without its numbers."""

    sha256: str = ""  # of the question with all that came with it
    weights: str = ""  # SHA-256 of the global weights
    norms: Mapping[str, float] = field(default_factory=dict)  # the length of each of their tensors


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One answer of a site, or one refusal."""

    time: str  # UTC
    run: str  # the experiment, by its digest
    round: int
    phase: str
    message: str
    fields: tuple[Field, ...]
    digest: str  # SHA-256 of names, types, shapes and numbers
    note: str = ""  # of a refusal, why; for the site only
    asked: Asked | None = None  # what it answers
    policy: Mapping[str, Any] = field(
        default_factory=dict
    )  # the rules in force: what `site.toml` allowed then
    privacy: Mapping[str, float] = field(
        default_factory=dict
    )  # ε of all answers with noise until then, how many they are, and how many had none

    @property
    def bytes(self) -> int:
        """The size of the numbers."""
        return sum(field.bytes for field in self.fields)


@dataclass(frozen=True, slots=True)
class Line:
    """An entry with its line number, from 1, and the chain after it."""

    number: int
    chain: str
    entry: AuditEntry
    signed: str = ""  # the site's signature of the chain value; empty in records of earlier versions


@dataclass(frozen=True, slots=True)
class Break:
    """The first line that does not fit."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What a check of the whole file found."""

    lines: tuple[Line, ...]
    torn: tuple[int, ...]  # the numbers of incomplete lines
    broken: Break | None
    size: int  # bytes, up to the end of the last line that fits

    @property
    def chain(self) -> str:
        """The last chain value. Someone who notes it can check later that nothing before it has changed."""
        return self.lines[-1].chain if self.lines else BEGINNING


def describe(
    run: str,
    round_: int,
    phase: str,
    message: str,
    arrays: Arrays,
    note: str = "",
    asked: Asked | None = None,
    policy: Mapping[str, Any] | None = None,
    privacy: Mapping[str, float] | None = None,
) -> AuditEntry:
    """The entry for an answer that is about to leave."""
    whole = hashlib.sha256()
    hash_arrays(whole, arrays)
    fields = [Field(name, str(one.dtype), one.shape, one.nbytes) for name, one in sorted(arrays.items())]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    digest = whole.hexdigest()
    return AuditEntry(
        now, run, round_, phase, message, tuple(fields), digest, note, asked, policy or {}, privacy or {}
    )


def append(path: Path, entry: AuditEntry, sign: Callable[[bytes], str] | None = None) -> tuple[int, str]:
    """Add a line; on return it is on the disk. Returns how many lines there are now, and the last chain value.

    `sign` signs the chain value. `UserError` if the record is broken.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file, _locked(file, fcntl.LOCK_EX):
            end = _end(path)
            body = json.dumps(asdict(entry) | end.torn, separators=(",", ":")).encode()
            chain = _chained(end.chain, body)
            signed = _SIGNED + sign(chain.encode()).encode() + b'"' if sign else b""
            line = _OPEN + chain.encode() + _BETWEEN + body + signed + _CLOSE + b"\n"
            file.write(line if end.newline else b"\n" + line)
            os.fsync(file.fileno())
            head = {"lines": end.lines + 1, "bytes": path.stat().st_size, "chain": chain}
            write_text(_head_path(path), json.dumps(head))
            return end.lines + 1, chain
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror}", file=path) from error


def check(path: Path) -> Audit:
    """Read a record from its first line to its last, and check that each fits the one before."""
    try:
        with path.open("rb") as file, _locked(file, fcntl.LOCK_SH):
            return _check(file.read(), _read_head(path))
    except FileNotFoundError:
        return _check(b"", _read_head(path))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from error


def fail_if_broken(audit: Audit, path: Path) -> None:
    """`UserError` if a check found the record broken."""
    if audit.broken:
        problem = f"line {audit.broken.line} {audit.broken.reason}: nothing more is recorded, nothing leaves"
        hint = "move it, audit.head and answered.json away, and keep them for whoever must look into it"
        raise UserError(problem, file=path, hint=hint)


def audit_table(audit: Audit) -> Table:
    """A record for the terminal, line by line, with sums; nothing is cut off in 80 columns."""
    from rich.table import Column, Table

    table = Table(
        Column("line", justify="right", no_wrap=True),
        Column("time (UTC)", no_wrap=True),
        Column("round", justify="right", no_wrap=True),
        Column("what left", ratio=1, overflow="fold"),
        Column("bytes", justify="right", no_wrap=True),
        show_lines=True,
    )
    for line in audit.lines:
        entry = line.entry
        cells = (
            str(line.number),
            entry.time.replace("T", " ").removesuffix("+00:00"),
            str(entry.round),
            f"{entry.message} (SHA-256 {entry.digest[:8]})\n{entry.note or describe_fields(entry.fields)}"
            + (f"\nε so far {entry.privacy['epsilon']:.4g}" if entry.privacy else ""),
            f"{entry.bytes:,}",
        )
        table.add_row(*map(_plain, cells))
    table.caption = _plain(summary(audit))
    table.caption_justify = "left"
    return table


def describe_fields(fields: Sequence[Field]) -> str:
    """The fields of an answer in words; several tensors under one name are counted, not listed."""
    groups: dict[str, list[Field]] = {}
    for one in fields:
        groups.setdefault(one.name.partition("/")[0], []).append(one)
    return "; ".join(f"{name}: {_describe_group(group)}" for name, group in groups.items())


def summary(audit: Audit) -> str:
    """How much left in all, by kind of message."""
    from fedrel.studio.formatting import size

    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for line in audit.lines:
        sizes[line.entry.message] += line.entry.bytes
        times[line.entry.message] += 1
    kinds = (f"{times[kind]:,} {kind} ({size(sizes[kind])})" for kind in sorted(times))
    return f"in all: {', '.join(kinds) or 'nothing left this site'}"


@dataclass(frozen=True, slots=True)
class _Head:
    """How long the record was after the last complete line, and the chain there."""

    lines: int
    bytes: int
    chain: str


@dataclass(frozen=True, slots=True)
class _End:
    """What the next line continues from."""

    lines: int
    chain: str
    newline: bool = True  # false: the line must begin with one
    torn: dict[str, Any] = field(default_factory=dict)  # the torn bytes that the line must include, if any


def _check(data: bytes, head: _Head | None) -> Audit:
    lines: list[Line] = []
    torn: list[int] = []
    loose: list[int] = []  # the lines since the last good one that no later line includes yet
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
    """The line, if it continues this chain and includes just these torn bytes."""
    rest = raw[_BODY : -len(_CLOSE)]
    at = rest.rfind(_SIGNED)  # which no string in JSON can contain
    body, signed = (rest, b"") if at < 0 else (rest[:at], rest[at:])
    new = _chained(chain, body)
    if raw != _OPEN + new.encode() + _BETWEEN + body + signed + _CLOSE:
        return None
    if signed and not _HEXADECIMAL.fullmatch(signed):
        return None
    try:
        content = json.loads(body)
        if content.pop("torn", None) != torn.get("torn"):
            return None
        fields = tuple(Field(**field | {"shape": tuple(field["shape"])}) for field in content.pop("fields"))
        if content.get("asked"):
            content["asked"] = Asked(**content["asked"])
        return Line(number, new, AuditEntry(**content, fields=fields), signed[len(_SIGNED) : -1].decode())
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _chained(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + body).hexdigest()


def _torn(fragment: bytes) -> dict[str, Any]:
    return {"torn": {"bytes": len(fragment), "sha256": hashlib.sha256(fragment).hexdigest()}}


def _end(path: Path) -> _End:
    """The end of the record. If the file is as long as its head says, its lines need not be read."""
    head, size = _read_head(path), path.stat().st_size
    if head is not None and head.bytes == size:
        return _End(head.lines, head.chain)
    data = path.read_bytes()
    audit = _check(data, head)
    fail_if_broken(audit, path)
    fragment = data[audit.size :]
    if fragment:
        return _End(len(audit.lines), audit.chain, newline=False, torn=_torn(fragment))
    return _End(len(audit.lines), audit.chain, newline=not data or data.endswith(b"\n"))


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


def _plain(text: str) -> Text:
    """Just these characters: a note may quote the coordinator, whose text must not style, move or hide anything."""
    from rich.text import Text

    return Text("".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text))


def _describe_group(group: Sequence[Field]) -> str:
    if len(group) == 1 and not group[0].shape:
        return f"one {group[0].dtype}"
    if len(group) == 1:
        return f"{' by '.join(map(str, group[0].shape))} {group[0].dtype}"
    numbers = sum(prod(field.shape) for field in group)
    kinds = ", ".join(sorted({field.dtype for field in group}))
    return f"{len(group)} arrays of {numbers:,} numbers ({kinds})"
