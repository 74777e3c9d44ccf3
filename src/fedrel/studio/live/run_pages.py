"""The list of runs, a run's page, what changes on both while they are open, and notes and tags.

Open pages are told which rows of the list changed, and of a run's new rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedrel.errors import UserError
from fedrel.runs.folder import Run, read_json, read_run, run_so_far
from fedrel.runs.records import Round, RunState
from fedrel.runs.run_notes import read_state
from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Figure, Plot
from fedrel.studio.live.compare_pages import run_difference
from fedrel.studio.live.page_maker import Addresses, Event, PageMaker, Remark, Remarks, sent_json
from fedrel.studio.live.run_index import METRICS, Row, RunIndex
from fedrel.studio.report import render_part
from fedrel.studio.run_page import run_page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


_EVERY_LIST, _EVERY_RUN = 2.0, 1.0  # seconds between two looks at the disk
_COLUMNS = [
    ("Run", "text"),
    ("State", "text"),
    ("Method", "text"),
    ("Seed", "number"),
    ("Best", "number"),
    ("Time", "number"),
    ("Sent by sites", "number"),
    ("Changed", "number"),
]


class RunPages:
    """The pages about single runs."""

    def __init__(self, maker: PageMaker) -> None:
        self._maker = maker

    def addresses(self) -> Addresses:
        """What is answered here."""
        return [
            ("GET", "/", self.list_page),
            ("GET", "/events", self.list_events),
            ("GET", "/run", self.run_page),
            ("GET", "/run/events", self.run_events),
            ("GET", "/difference", self.difference_page),
            ("POST", "/remarks", self.keep_remark),
        ]

    async def list_page(self, request: Request) -> Response:
        """All runs."""
        rows = await asyncio.to_thread(self._maker.scanned)
        shown = self._maker.index.root.name or "runs"
        values = {
            "title": "Runs",
            "setting": "",
            "rows": rows,
            "remarks": self._maker.remarks.all(),
            "nothing": Remark(),
            "columns": _COLUMNS,
            "lead": lead(rows),
            "at_site": not rows and any(address == "/federation" for _, address in self._maker.links),
            "example": f"{shown}/first",
            "example_comparison": f"{shown}/few",
        }
        return await self._maker.page("runs.html", values, stream="/events", here="/")

    async def list_events(self, request: Request) -> Response:
        """Changes of the list, while the page is open."""
        maker = self._maker
        return maker.stream("list", lambda: ListWatch(maker.index, maker.remarks, maker.lock), _EVERY_LIST)

    async def run_page(self, request: Request) -> Response:
        """One run, finished or not."""
        row = await asyncio.to_thread(self._run_row, request.query_params.get("id", ""))
        values = await asyncio.to_thread(lambda: run_page(self._read(row)))
        others = [one for one in self._maker.rows() if one.kind == "run" and one.id != row.id]
        return await self._maker.page(
            "run.html",
            values,
            here="/run",
            stream=f"/run/events?id={quote(row.id)}" if row.state != "finished" else None,
            row=row,
            remark=self._maker.remarks.of(row.id),
            others=[one for one in others if one.state != "unreadable"],
        )

    async def run_events(self, request: Request) -> Response:
        """What happens in a run, while its page is open: one look at the disk for all who watch."""
        row = await asyncio.to_thread(self._run_row, request.query_params.get("id", ""))
        maker = self._maker
        return maker.stream(f"run {row.id}", lambda: RunWatch(maker.index, row.id, maker.lock), _EVERY_RUN)

    async def difference_page(self, request: Request) -> Response:
        """In what two runs differ: settings, versions, numbers."""

        def values() -> dict[str, Any]:
            rows = [self._run_row(request.query_params.get(name, "")) for name in ("id", "other")]
            return run_difference(*((row, self._read(row)) for row in rows))

        return await self._maker.page("difference.html", await asyncio.to_thread(values))

    async def keep_remark(self, request: Request) -> Response:
        """Keep a note and tags."""
        from starlette.responses import JSONResponse

        sent = await sent_json(request)
        row = await asyncio.to_thread(self._maker.find, str(sent.get("id", "")))
        tags = sent.get("tags")
        if not isinstance(tags, list):
            raise UserError("tags must be a list")
        note, words = str(sent.get("note", "")), [str(tag) for tag in tags]
        kept = await asyncio.to_thread(self._maker.remarks.keep, row.id, note, words)
        return JSONResponse(kept.model_dump())

    def _run_row(self, identity: str) -> Row:
        row = self._maker.find(identity)
        if row.kind != "run":
            raise UserError("this is a comparison, not a run", hint="The list leads to its page.")
        return row

    def _read(self, row: Row) -> Run:
        folder = self._maker.index.folder(row.id)
        return read_run(folder) if row.state == "finished" else read_so_far(folder, row)


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
        self._banner = ""

    def __call__(self) -> Event | None:
        """The parts and plots of the run's page that are new; `reload` if it is another page by now."""
        with self._lock:
            row = self._index.look_at(self._identity)
        if row == self._row:
            return None
        self._row = row
        if row is None or row.state in ("finished", "unreadable"):
            return {"reload": True}
        grown, before = self._follow.grow(), self._banner
        self._banner = render_part("live_parts.html", "banner", row)
        if self._banner == before and not grown:
            return None
        values = run_page(self._follow.run(row))
        parts = {
            "banner": self._banner,
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
