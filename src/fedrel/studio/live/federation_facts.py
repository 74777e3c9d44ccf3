"""What the federation's page shows, at the coordinator and at a site. Who starts the studio says how it is found.

At the coordinator there is only what sites have sent, and what the coordinator knows of the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


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
