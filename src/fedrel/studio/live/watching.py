"""What live pages are told while they are open: rows of the list that changed, and a run's new rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fedrel.runs.folder import Run, read_json, run_so_far
from fedrel.runs.records import Round, RunState
from fedrel.runs.run_notes import read_state
from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Figure, Plot
from fedrel.studio.live.feeds import Event
from fedrel.studio.live.remarks import Remark, Remarks
from fedrel.studio.live.run_index import METRICS, Row, RunIndex
from fedrel.studio.rendering import render_part
from fedrel.studio.run_page import run_page


class ListWatch:
    """Looks through the folder, and tells which rows of the list have changed."""

    def __init__(self, index: RunIndex, remarks: Remarks, lock: Lock) -> None:
        self._index, self._remarks, self._lock = index, remarks, lock
        self._said = remarks.all()

    def __call__(self) -> Event | None:
        """The changed rows as HTML, None for one that is gone."""
        with self._lock:
            changed = self._index.scan() | self._index.complete()
            said = self._remarks.all()
            changed |= {one for one in {*said, *self._said} if said.get(one) != self._said.get(one)}
            self._said = said
            rows = {one: self._index.row(one) for one in changed}
            everything = self._index.rows if changed else []
        if not changed:
            return None
        html = {one: row and row_part(row, said.get(one)) for one, row in rows.items()}
        return {"rows": html, "parts": {"lead": f'<p class="lead" data-part="lead">{lead(everything)}</p>'}}


class RunWatch:
    """Follows one run's `metrics.jsonl`: only what was added is read."""

    def __init__(self, index: RunIndex, identity: str, lock: Lock) -> None:
        self._index, self._identity, self._lock = index, identity, lock
        self._follow = Follow(index.folder(identity))
        self._row: Row | None = None

    def __call__(self) -> Event | None:
        """The parts and plots of the run's page that are new; `reload` if it is another page by now."""
        with self._lock:
            row = self._index.look_at(self._identity)
        if row == self._row:
            return None
        before, self._row = self._row, row
        if row is None or row.state in ("finished", "unreadable"):
            return {"reload": True}
        grown = self._follow.grow()
        if before is not None and row.state == before.state and not grown:
            return None
        values = run_page(self._follow.run(row))
        parts = {
            "banner": render_part("live_parts.html", "banner", row),
            "tiles": render_part("parts.html", "tiles", values["tiles"]),
        }
        return {"parts": parts, "plots": plots_of(values)}


class Follow:
    """The rounds of a run that is not finished, read as they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / METRICS
        self._offset, self._rounds = 0, list[Round]()

    def grow(self) -> bool:
        """Read what was added since the last time; whether anything was."""
        size = self._file.stat().st_size if self._file.exists() else 0
        if size < self._offset:  # the run was begun anew
            self._offset, self._rounds = 0, []
        if size == self._offset:
            return False
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode("utf-8").splitlines():
            self._rounds.append(read_json(Round, self._file, line, len(self._rounds) + 1))
        return bool(whole)

    def run(self, row: Row) -> Run:
        """The run so far."""
        state = read_state(self._folder) or _state_of(row)
        return run_so_far(self._folder, state, self._rounds)


def _state_of(row: Row) -> RunState:
    """What the list knows of a run without `state.json`."""
    return RunState(
        phase="training", method=row.method, seed=row.seed or 0, rounds=row.rounds, metric=row.metric
    )


def read_so_far(folder: Path, row: Row) -> Run:
    """A run that is not finished."""
    follow = Follow(folder)
    follow.grow()
    return follow.run(row)


def plots_of(values: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures of a page, by their titles."""
    return {plot.title: plot.figure for value in values.values() for plot in _plots(value)}


def _plots(value: Any) -> Iterator[Plot]:
    if isinstance(value, Plot):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _plots(one)
    else:
        for name in ("plot", "plots", "confusion"):
            yield from _plots(getattr(value, name, []))


def row_part(row: Row, remark: Remark | None) -> str:
    """A row of the list."""
    return render_part("live_parts.html", "row", row, remark or Remark())


def lead(rows: list[Row]) -> str:
    """The list in a sentence: how many runs there are, and how many of them go on."""
    runs = [row for row in rows if row.kind == "run"]
    if not runs:
        return "Nothing has been trained in this folder yet."
    counts = {
        "going on": sum(row.live for row in runs),
        "finished": sum(row.state == "finished" for row in runs),
        "stopped": sum(row.state == "stopped" for row in runs),
        "failed": sum(row.state == "failed" for row in runs),
        "unreadable": sum(row.state == "unreadable" for row in runs),
    }
    parts = [f"{fmt.count(number)} {what}" for what, number in counts.items() if number]
    total = f"{fmt.count(len(runs))} {'run' if len(runs) == 1 else 'runs'}"
    return f"{total}: {fmt.several(parts)}."
