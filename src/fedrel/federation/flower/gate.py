"""The site's say in what it is asked: a gate before every answer is made, and again before it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedrel.federation.messages import Arrays

if TYPE_CHECKING:
    from fedrel.config import Config
    from fedrel.federation.flower.reasons import Reason


@dataclass(frozen=True)
class Request:
    """What a coordinator asks a site for."""

    run: str  # a name for the run: the config's digest and a number of its own
    config: Config  # the experiment; its data, partition and engine mean nothing at a site
    artefacts: Mapping[str, str]  # the fingerprints of what was published, by name
    site: int
    round: int  # 0 for the census
    phase: str  # the name of the method's `at_site` function, or "census"
    brings: tuple[str, ...]  # the kinds of message that came with it
    gives: str  # the kind of message that would leave


class Gate(Protocol):
    """Decides for a site, and keeps its record."""

    def allow(self, request: Request) -> Reason | None:
        """Before anything is computed: why the request is refused, or None."""

    def record(self, request: Request, arrays: Arrays) -> Reason | None:
        """Before the answer leaves: write down what leaves, or say why it must not."""

    def refuse(self, request: Request | None, reason: Reason, note: str = "") -> Reason:
        """Write down a refusal that is not the gate's own; the note is for the site alone.

        There is no request where what came could not be read as one.
        """


class OpenGate:
    """Lets everything through: for simulations, where no site has anything to guard."""

    def allow(self, request: Request) -> Reason | None:
        """Nothing is refused."""
        return None

    def record(self, request: Request, arrays: Arrays) -> Reason | None:
        """Nothing is written down."""
        return None

    def refuse(self, request: Request | None, reason: Reason, note: str = "") -> Reason:
        """The simulation's log is enough."""
        return reason
