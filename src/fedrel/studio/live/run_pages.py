"""The list of runs, a run's page, what changes on both while they are open, and notes and tags."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedrel.errors import UserError
from fedrel.runs.folder import Run, read_run
from fedrel.studio.live.differences import run_difference
from fedrel.studio.live.page_maker import Addresses, PageMaker, sent_json
from fedrel.studio.live.remarks import Remark
from fedrel.studio.live.run_index import Row
from fedrel.studio.live.watching import ListWatch, RunWatch, lead, read_so_far
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
