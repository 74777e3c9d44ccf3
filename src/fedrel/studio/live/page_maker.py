"""What all groups of pages share: the folder's index, its remarks, how a page is answered, and its events.

Remarks are notes and tags that people give to runs: the one thing that the studio writes, into one JSON file.

Server-sent events tell open pages what has changed. There is one source for each thing that is watched, however
many browsers watch it. A source looks at the disk only while someone listens. An event is a dictionary; what a slow
browser has not fetched yet is joined with what comes later, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError
from fedrel.evaluation.outcome import Record
from fedrel.files import write_text
from fedrel.runs.folder import read_json
from fedrel.studio.live.run_index import Row, RunIndex
from fedrel.studio.report import render_live

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


MOST_LISTENERS = 200  # open pages

Answer = Callable[["Request"], Awaitable["Response"]]
Addresses = list[tuple[str, str, Answer]]
"""Method, address, and who answers."""

Event = dict[str, Any]
"""Named parts, each a dictionary: `{"rows": {id: html}}`. Later values of a key replace earlier ones."""
Look = Callable[[], Event | None]
"""Looks at the disk and gives what has changed since the last time, or None. Called in a thread."""

SLOWEST = 15.0  # seconds between two looks, however long a look takes
QUIET = 15.0  # seconds after which a comment is sent, which shows if the browser is gone

FILE = "studio.json"
LONGEST_NOTE = 4000  # characters
LONGEST_TAG, MOST_TAGS = 40, 12


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


class TooManyError(Exception):
    """As many browsers listen as are allowed."""


class Feed:
    """Watches one thing for all who listen."""

    def __init__(self, look: Look, every: float) -> None:
        self._look, self._every = look, every
        self._waiting: dict[asyncio.Event, Event] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._waiting)

    async def events(self) -> AsyncIterator[bytes]:
        """The events as bytes for a browser, until it goes away."""
        ready = asyncio.Event()
        self._waiting[ready] = {}
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            yield b"retry: 2000\n\n"
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ready.wait(), QUIET)
                if not ready.is_set():
                    yield b": still here\n\n"
                    continue
                ready.clear()
                event, self._waiting[ready] = self._waiting[ready], {}
                yield b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
        finally:
            del self._waiting[ready]
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        while True:
            started = asyncio.get_running_loop().time()
            try:
                event = await asyncio.to_thread(self._look)
            except (UserError, OSError):
                event = {"reload": True}  # the page itself says what is wrong
            if event:
                for ready, waiting in self._waiting.items():
                    self._waiting[ready] = joined(waiting, event)
                    ready.set()
            took = asyncio.get_running_loop().time() - started
            # Looking takes a twentieth of the time, but nobody waits long for what is new.
            await asyncio.sleep(max(self._every, min(20 * took, SLOWEST)))


class Feeds:
    """The feeds that are in use, by the name of what they watch."""

    def __init__(self, most: int) -> None:
        self._most, self._feeds = most, dict[str, Feed]()

    def feed(self, name: str, look: Callable[[], Look], every: float) -> Feed:
        """The feed of that name, made if nobody listens to it yet."""
        self._feeds = {key: one for key, one in self._feeds.items() if one.listeners}
        if sum(one.listeners for one in self._feeds.values()) >= self._most:
            raise TooManyError
        if name not in self._feeds:
            self._feeds[name] = Feed(look(), every)
        return self._feeds[name]


def joined(first: Event, second: Event) -> Event:
    """Two events as one.

    >>> joined({"rows": {"a": 1}}, {"rows": {"a": 2, "b": 3}, "state": "x"})
    {'rows': {'a': 2, 'b': 3}, 'state': 'x'}
    """
    found = dict(first)
    for key, value in second.items():
        before = found.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = {**before, **value}  # noqa: PLW2901 - joined
        found[key] = value
    return found


class Remark(Record):
    """What was said of a run."""

    note: str = ""
    tags: list[str] = []


class Remarks:
    """The remarks of a folder, by the run's path from it. Another studio may write to the same file."""

    def __init__(self, root: Path) -> None:
        self._file, self._lock = root / FILE, threading.Lock()
        self._seen: tuple[int, dict[str, Remark]] | None = None

    def all(self) -> dict[str, Remark]:
        """All of them; none if the file is not one of ours."""
        try:
            changed = self._file.stat().st_mtime_ns
        except OSError:
            return {}
        if self._seen is None or self._seen[0] != changed:
            try:
                found = read_json(dict[str, Remark], self._file)
            except UserError:
                return {}
            self._seen = (changed, found)
        return self._seen[1]

    def of(self, identity: str) -> Remark:
        """What was said of one run."""
        return self.all().get(identity) or Remark()

    def keep(self, identity: str, note: str, tags: list[str]) -> Remark:
        """Replace what was said of a run."""
        remark = Remark(note=note.strip(), tags=_tags(tags))
        if len(remark.note) > LONGEST_NOTE:
            raise UserError(f"a note has at most {LONGEST_NOTE:,} characters", hint="shorten it")
        with self._lock:
            known: dict[str, Any] = {}
            if self._file.exists():  # a broken file is an error here: it must not be overwritten
                known = {
                    name: one.model_dump() for name, one in read_json(dict[str, Remark], self._file).items()
                }
            known.pop(identity, None)
            if remark != Remark():
                known[identity] = remark.model_dump()
            write_text(self._file, json.dumps(known, ensure_ascii=False, indent=1, sort_keys=True))
        return remark


def _tags(given: list[str]) -> list[str]:
    tags = list(dict.fromkeys(" ".join(tag.split()) for tag in given))
    tags = [tag for tag in tags if tag]
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
        problem = f"a run has at most {MOST_TAGS} tags of {LONGEST_TAG} characters"
        raise UserError(problem, hint="separate tags by commas")
    return tags
