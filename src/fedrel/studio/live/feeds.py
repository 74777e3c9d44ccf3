"""Server-sent events: one source for each thing that is watched, however many browsers watch it.

A source looks at the disk only while someone listens. An event is a dictionary; what a slow browser has not fetched
yet is joined with what comes later, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from fedrel.errors import UserError

Event = dict[str, Any]
"""Named parts, each a dictionary: `{"rows": {id: html}}`. Later values of a key replace earlier ones."""
Look = Callable[[], Event | None]
"""Looks at the disk and gives what has changed since the last time, or None. Called in a thread."""

SLOWEST = 15.0  # seconds between two looks, however long a look takes
QUIET = 15.0  # seconds after which a comment is sent, which shows if the browser is gone


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
