"""Every run and comparison below a folder, read again only where files have changed.

A finished run is read from its `result.json`. Of one that is not finished, the end of `metrics.jsonl` is read at
first, so that a folder of a thousand runs opens at once; `complete` then reads the rest, and later only what was
added.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from fedrel.errors import UserError
from fedrel.files import without_seal
from fedrel.runs.folder import REPAIR
from fedrel.runs.run_notes import STATE, is_running
from fedrel.studio import formatting as fmt

State = Literal["reading", "training", "finished", "stopped", "failed", "unreadable"]

METRICS, RESULT, CONFIG, COMPARISON = "metrics.jsonl", "result.json", "config.toml", "comparison.json"
_READ = (RESULT, METRICS, STATE, COMPARISON)
_NOT_RUNS = frozenset(
    {"checkpoint", "model", "sites", "flower", "artefacts", "preparation", "materials", "state"}
)
_DEEPEST = 8  # folders below the one that is shown
_TAIL = 65_536  # bytes of metrics.jsonl that are read at first
_RECENT = 10  # rounds that the time left is reckoned by

Entries = dict[str, os.DirEntry[str]]
Signature = tuple[tuple[str, int, int], ...]
"""Name, time of the last change and size of the files that a row is made of."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run or a comparison in the list; `id` is its path from the folder that is shown."""

    id: str
    kind: Literal["run", "comparison"] = "run"
    state: State = "stopped"
    method: str = ""
    seed: int | None = None
    round: int = 0
    rounds: int = 0
    metric: str = ""
    value: float | None = None  # on test of a finished run, else the best on dev
    up: int | None = None
    down: int | None = None
    seconds: float | None = None
    left: float | None = None  # seconds
    changed: float = 0.0  # seconds since the epoch
    message: str = ""
    exact: bool = True  # false: only the end of metrics.jsonl was read

    @property
    def live(self) -> bool:
        """Whether a process works on it."""
        return self.state in ("reading", "training")

    @property
    def said(self) -> str:
        """The state in words."""
        match self.state:
            case "training" | "stopped" | "failed" if self.rounds:
                at = f"round {self.round} of {self.rounds}"
                return at if self.state == "training" else f"{self.state}, {at}"
            case _:
                return self.state


@dataclass(slots=True)
class Progress:
    """The rounds of a run so far, summed up; `offset` is how much of the file they are."""

    offset: int = 0
    round: int = 0
    best: float | None = None
    up: int = 0
    down: int = 0
    seconds: float = 0.0
    recent: tuple[float, ...] = ()

    def add(self, lines: bytes, metric: str) -> None:
        """Add complete lines; one that cannot be read is left out: the run's own page says what is wrong."""
        for line in lines.splitlines():
            try:
                one = orjson.loads(line)
                known, sent = one.get("dev") or {}, one.get("bytes") or {}
                dev = known.get(metric or next(iter(known), ""))
                self.round = int(one["round"])
                self.up, self.down = self.up + sent.get("up", 0), self.down + sent.get("down", 0)
                took = float(one.get("seconds") or 0.0)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if isinstance(dev, float | int):
                self.best = max(dev, self.best) if self.best is not None else dev
            self.seconds += took
            self.recent = (*self.recent[1 - _RECENT :], took)


@dataclass(slots=True)
class _Known:
    signature: Signature
    row: Row
    progress: Progress


class RunIndex:
    """The runs below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._known: dict[str, _Known] = {}

    @property
    def rows(self) -> list[Row]:
        """All rows, the last changed first; what is being trained before all else."""
        rows = [known.row for known in self._known.values()]
        return sorted(rows, key=lambda row: (not row.live, -row.changed, row.id))

    def row(self, identity: str) -> Row | None:
        """The row of a run or comparison that was found. Nothing that was not found can be asked for."""
        known = self._known.get(identity)
        return known.row if known else None

    def folder(self, identity: str) -> Path:
        """Where it is."""
        return self.root / self._known[identity].row.id

    def scan(self) -> set[str]:
        """Look at the disk; the ids of what is new, changed or gone."""
        changed, seen = set(), set()
        for identity, entries in _folders(self.root):
            if not any(name in entries for name in _READ):
                continue
            seen.add(identity)
            before = self._known.get(identity)
            try:
                after = self._look(identity, entries, before)
            except OSError:  # gone since the folder was read
                seen.discard(identity)
                continue
            self._known[identity] = after
            if before is None or before.row != after.row:
                changed.add(identity)
        gone = self._known.keys() - seen
        for identity in gone:
            del self._known[identity]
        return changed | gone

    def look_at(self, identity: str) -> Row | None:
        """Look at one run again; None if it is gone."""
        known = self._known.get(identity)
        if known is None:
            return None
        try:
            with os.scandir(self.root / identity) as found:
                entries = {entry.name: entry for entry in found}
        except OSError:
            return None
        with suppress(OSError):  # gone since the folder was read
            if any(name in entries for name in _READ):
                self._known[identity] = self._look(identity, entries, known)
        return self._known[identity].row

    def complete(self) -> set[str]:
        """Read in full what was only read at its end; the ids of what changed by that."""
        changed = set()
        for identity, known in list(self._known.items()):
            if known.row.exact:
                continue
            progress = Progress()
            row = _with_progress(known.row, self.folder(identity) / METRICS, progress)
            self._known[identity] = _Known(known.signature, row, progress)
            changed.add(identity)
        return changed

    def _look(self, identity: str, entries: Entries, before: _Known | None) -> _Known:
        stats = {name: _stat(entries[name]) for name in _READ if name in entries}
        signature = tuple((name, one.st_mtime_ns, one.st_size) for name, one in stats.items())
        same = before is not None and before.signature == signature
        if before is not None and same and before.row.state in ("finished", "failed", "unreadable"):
            return before
        row = Row(identity, changed=max(one.st_mtime for one in stats.values()))
        progress = Progress() if before is None or _begun_anew(before, stats) else before.progress
        try:
            row = self._read(row, entries, before.row if before and same else None, progress)
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            row = replace(row, state="unreadable", message=f"cannot be read: {error}")
        return _Known(signature, row, progress)

    def _read(self, row: Row, entries: Entries, unchanged: Row | None, progress: Progress) -> Row:
        leaving = [name for name, entry in entries.items() if entry.is_symlink() and not self._inside(entry)]
        if leaving:
            raise ValueError(f"{min(leaving)} is a link that leads out of the folder")
        folder = self.root / row.id
        if COMPARISON in entries:
            return _comparison(row, folder)
        about = _about(folder, entries)
        if RESULT in entries and about.get("phase") in (None, "finished"):
            result = without_seal(
                orjson.loads((folder / RESULT).read_bytes()), folder / RESULT, "a result", REPAIR
            )
            return _finished(row, result)
        row = _unfinished(row, about, running=is_running(folder))
        if METRICS not in entries:
            return row
        if unchanged is None or unchanged.metric != row.metric:
            size = _stat(entries[METRICS]).st_size
            if not progress.offset and size > _TAIL:
                return _with_tail(row, folder / METRICS, size)
        elif not unchanged.exact:
            return replace(row, **{name: getattr(unchanged, name) for name in _COUNTED})
        return _with_progress(row, folder / METRICS, progress)

    def _inside(self, entry: os.DirEntry[str]) -> bool:
        return Path(entry.path).resolve().is_relative_to(self.root)


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Of a file, or of a link whose file is missing, the link's own."""
    try:
        return entry.stat()
    except OSError:
        return entry.stat(follow_symlinks=False)


def _begun_anew(before: _Known, stats: dict[str, os.stat_result]) -> bool:
    return METRICS not in stats or stats[METRICS].st_size < before.progress.offset


_COUNTED = ("round", "value", "up", "down", "seconds", "left", "exact")


def _folders(root: Path) -> Iterator[tuple[str, Entries]]:
    """Folders below one, by their path from it, with what is in each. Links to folders are not followed."""
    pending = [("", 0)]
    while pending:
        at, depth = pending.pop()
        try:
            with os.scandir(root / at) as found:
                entries = {entry.name: entry for entry in found}
        except OSError:
            continue  # gone, or not for us to read
        yield at or ".", entries
        for name, entry in entries.items():
            searched = depth < _DEEPEST and name not in _NOT_RUNS and not name.startswith(".")
            if searched and entry.is_dir(follow_symlinks=False):
                pending.append((f"{at}/{name}" if at else name, depth + 1))


def _about(folder: Path, entries: Entries) -> dict[str, Any]:
    """What `state.json` says; of a run without one, and without a result, what its config says."""
    if STATE in entries:
        return dict(orjson.loads((folder / STATE).read_bytes()))
    if RESULT in entries or CONFIG not in entries:
        return {}
    tree = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return {
        "method": tree.get("method", ""),
        "seed": tree.get("seed"),
        "rounds": tree.get("training", {}).get("rounds", 0),
        "metric": tree.get("evaluation", {}).get("metric", ""),
    }


def _finished(row: Row, result: dict[str, Any]) -> Row:
    metrics, dev = result["metrics"], result.get("dev_metric") or {}
    metric = next(iter({**dev, **metrics}), "")
    return replace(
        row,
        state="finished",
        method=str(result["method"]),
        seed=int(result["seed"]),
        round=int(result["rounds"]),
        rounds=int(result["rounds"]),
        metric=metric,
        value=metrics.get(metric),
        up=int(result["bytes"]["up"]),
        down=int(result["bytes"]["down"]),
        seconds=float(result["seconds"]),
    )


def _unfinished(row: Row, about: dict[str, Any], *, running: bool) -> Row:
    phase = about.get("phase")
    state: State = "failed" if phase == "failed" else "stopped"
    if running:
        state = "reading" if phase == "reading" else "training"
    seed = about.get("seed")
    return replace(
        row,
        state=state,
        method=str(about.get("method", "")),
        seed=None if seed is None else int(seed),
        rounds=int(about.get("rounds", 0)),
        metric=str(about.get("metric", "")),
        message=str(about.get("message", "")) if state == "failed" else "",
    )


def _comparison(row: Row, folder: Path) -> Row:
    rows = orjson.loads((folder / COMPARISON).read_bytes())["rows"]
    methods = list(dict.fromkeys(str(one["method"]) for one in rows))
    return replace(
        row,
        kind="comparison",
        state="finished",
        method=fmt.several(methods) if methods else "",
        up=sum(int(one["bytes"]["up"]) for one in rows),
        down=sum(int(one["bytes"]["down"]) for one in rows),
        seconds=sum(float(one["seconds"]) for one in rows),
    )


def _with_progress(row: Row, file: Path, progress: Progress) -> Row:
    """The row with all rounds so far; `progress` goes on from where it was."""
    with file.open("rb") as opened:
        opened.seek(progress.offset)
        new = opened.read()
    whole = new[: new.rfind(b"\n") + 1]
    progress.offset += len(whole)
    progress.add(whole, row.metric)
    return _counted(row, progress, exact=True)


def _with_tail(row: Row, file: Path, size: int) -> Row:
    """The row with what the last rounds say: where it is, and how long it will take."""
    with file.open("rb") as opened:
        opened.seek(size - _TAIL)
        new = opened.read()
    last = Progress()
    last.add(new[new.find(b"\n") + 1 : new.rfind(b"\n") + 1], row.metric)
    return replace(_counted(row, last, exact=False), value=None, up=None, down=None, seconds=None)


def _counted(row: Row, progress: Progress, *, exact: bool) -> Row:
    left = None
    if row.live and progress.recent and row.rounds:
        left = (row.rounds - progress.round) * sum(progress.recent) / len(progress.recent)
    return replace(
        row,
        round=progress.round,
        value=progress.best,
        up=progress.up,
        down=progress.down,
        seconds=progress.seconds,
        left=left,
        exact=exact,
    )
