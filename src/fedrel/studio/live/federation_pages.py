"""The federation's page: at the coordinator who is connected and what was refused, at a site what left it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrel.studio.live.federation_facts import Facts, SiteFacts
from fedrel.studio.live.feeds import Event
from fedrel.studio.live.page_maker import Addresses, PageMaker
from fedrel.studio.rendering import render_part

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

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
