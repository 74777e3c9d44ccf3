"""The federation's page: at the coordinator who is connected and what was refused, at a site what left it.

Who starts the studio says how these facts are found. At the coordinator there is only what sites have sent, and
what the coordinator knows of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.studio.live.page_maker import Addresses, Event, PageMaker
from fedrel.studio.report import render_part

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


@dataclass(frozen=True, slots=True)
class Member:
    """A site as the coordinator knows it; what is not known is None."""

    name: str
    node: str  # registered, online, offline
    sentences: int | None = None
    last_answer: float | None = None  # seconds since the epoch
    round: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An answer that the coordinator did not use."""

    round: int
    site: str
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorFacts:
    """A federation at its coordinator, and its latest run."""

    members: list[Member]
    run: str | None = None
    round: int = 0
    rounds: int | None = None
    up: int = 0  # bytes
    down: int = 0
    left_out: list[LeftOut] = field(default_factory=list)  # the latest first

    @property
    def online(self) -> int:
        """How many sites are connected."""
        return sum(one.node == "online" for one in self.members)


@dataclass(frozen=True, slots=True)
class Departure:
    """An answer, or a refusal, that left a site."""

    line: int
    time: str
    round: int
    message: str
    what: str
    bytes: int
    refusal: bool


@dataclass(frozen=True, slots=True)
class KindTotal:
    """All that left of one kind of message."""

    message: str
    times: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """A site: its policy in sentences, what left it, and whether its record is whole."""

    name: str
    coordinator: str
    prepared: bool
    sentences: int | None
    policy: list[str]
    totals: list[KindTotal]
    departures: list[Departure]  # the latest first
    recorded: int
    broken: str
    torn: int
    chain: str

    @property
    def bytes(self) -> int:
        """How much left in all."""
        return sum(one.bytes for one in self.totals)


Facts = CoordinatorFacts | SiteFacts
Describe = Callable[[Path], Callable[[], Facts] | None]
"""For a folder of a federation, a function that looks at it; None for any other folder."""


_EVERY = 3.0  # seconds between two looks


class FederationPages:
    """The page, and what changes on it while it is open."""

    def __init__(self, maker: PageMaker, look: Callable[[], Facts]) -> None:
        self._maker, self._look, self._last = maker, look, ""

    def addresses(self) -> Addresses:
        """What is answered here."""
        return [
            ("GET", "/federation", self.federation_page),
            ("GET", "/federation/events", self.federation_events),
        ]

    async def federation_page(self, request: Request) -> Response:
        """What is known here."""
        facts = await asyncio.to_thread(self._look)
        at_site = isinstance(facts, SiteFacts)
        values: dict[str, Any] = {
            "title": f"The site {facts.name}" if isinstance(facts, SiteFacts) else "The federation",
            "setting": f"coordinator at {facts.coordinator}" if isinstance(facts, SiteFacts) else "",
            "facts": facts,
            "macro": "site" if at_site else "coordinator",
        }
        return await self._maker.page(
            "federation.html", values, here="/federation", stream="/federation/events"
        )

    async def federation_events(self, request: Request) -> Response:
        """What has changed, for as long as the page is open."""
        return self._maker.stream("federation", lambda: self._changed, _EVERY)

    def _changed(self) -> Event | None:
        facts = self._look()
        html = render_part(
            "federation_parts.html", "site" if isinstance(facts, SiteFacts) else "coordinator", facts
        )
        if html == self._last:
            return None
        self._last = html
        return {"parts": {"facts": html}}
