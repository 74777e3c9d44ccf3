"""What all groups of pages share: the folder's index, its remarks, and how a page is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError
from fedrel.studio.live.feeds import Feeds, Look
from fedrel.studio.live.remarks import Remarks
from fedrel.studio.live.run_index import Row, RunIndex
from fedrel.studio.rendering import render_live

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_LISTENERS = 200  # open pages

Answer = Callable[["Request"], Awaitable["Response"]]
Addresses = list[tuple[str, str, Answer]]
"""Method, address, and who answers."""


class PageMaker:
    """Looks runs up and fills templates. All work with files is done in threads."""

    def __init__(self, root: Path) -> None:
        self.index, self.remarks, self.lock = RunIndex(root), Remarks(root.resolve()), Lock()
        self._feeds = Feeds(MOST_LISTENERS)
        self.links: list[tuple[str, str]] = []  # of the bar that all pages have: name and address

    def rows(self) -> list[Row]:
        """All rows, as they were at the last look at the disk."""
        with self.lock:
            return self.index.rows

    def scanned(self) -> list[Row]:
        """All rows, after a look at the disk."""
        with self.lock:
            self.index.scan()
            return self.index.rows

    def find(self, identity: str) -> Row:
        """A run or comparison of the folder, by its path in the list: what is not in the list does not exist."""
        with self.lock:
            row = self.index.look_at(identity)
            if row is None:  # it may be newer than the last look
                self.index.scan()
                row = self.index.row(identity)
        if row is None:
            raise UserError("there is no such run in this folder", hint="It may have been moved or deleted.")
        if row.state == "unreadable":
            raise UserError(f"the run {row.id} {row.message}", hint="The other runs can still be looked at.")
        return row

    async def page(
        self, template: str, values: Mapping[str, Any], *, here: str = "", status: int = 200, **live: Any
    ) -> Response:
        """A page, or a part of one, from a template."""
        from starlette.responses import HTMLResponse

        root = self.index.root
        shared = {"stream": None, "here": here, "folder": root.name or str(root), "pages": self.links}
        html = await asyncio.to_thread(render_live, template, values, shared | live)
        return HTMLResponse(html, status, headers={"Cache-Control": "no-store"})

    def stream(self, name: str, look: Callable[[], Look], every: float) -> Response:
        """Events for an open page; all that ask for the same name share one look at the disk."""
        from starlette.responses import StreamingResponse

        feed = self._feeds.feed(name, look, every)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(feed.events(), media_type="text/event-stream", headers=headers)


async def sent_json(request: Request) -> dict[str, Any]:
    """What a script sent; its size was checked before."""
    try:
        found = await request.json()
    except ValueError as error:
        raise UserError("what was sent is not JSON") from error
    if not isinstance(found, dict):
        raise UserError("what was sent is not a JSON object")
    return found
