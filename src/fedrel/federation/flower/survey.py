"""An engine over real sites: it asks each what it holds before it may be drawn, and goes on asking newcomers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message

from fedrel.errors import UserError
from fedrel.federation.flower import envelope
from fedrel.federation.flower.census import CENSUS, Holdings
from fedrel.federation.flower.engine import FlowerEngine
from fedrel.federation.flower.post import Letter
from fedrel.federation.flower.reasons import Why
from fedrel.federation.flower.roster import Roster
from fedrel.federation.messages import RefusedError

_log = logging.getLogger(__name__)

NOBODY = -1  # whom a question is for that only asks a node who it is
LOOK = 0.5  # seconds between two looks for sites that are not there yet


class SurveyingEngine(FlowerEngine):
    """Flower's engine with sites that say for themselves what they hold."""

    _nodes: Roster

    def __init__(self, *given: object, triples: int, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.triples = triples
        # By site: the node that refused, or None if the question was lost on the way; and the reason.
        self._silent: dict[int, tuple[int | None, str]] = {}

    def gather(self, at_least: int | None, within: float) -> None:
        """Wait until all sites have said what they hold; `UserError` if fewer than `at_least` have in that time.

        A site that refuses is not waited for: it would refuse again. One that is lost on the way may come back.
        """
        end, said = time.monotonic() + within, ""
        while True:
            self._ask_newcomers()
            ready = np.count_nonzero(self._nodes.sizes())
            settled = ready + sum(node is not None for node, _ in self._silent.values())
            if settled == len(self._nodes.names) or time.monotonic() > end:
                break
            if (missing := self._missing()) != said:
                _log.warning("waiting: %s", missing)
                said = missing
            time.sleep(LOOK)
        wanted = len(self._nodes.names) if at_least is None else at_least
        if ready < wanted:
            problem = (
                f"{ready} of {len(self._nodes.names)} sites are ready, {wanted} must be: {self._missing()}"
            )
            remedy = "start or mend these sites, or set engine.min_sites to go on without them"
            raise UserError(problem, remedy=remedy)

    def sizes(self) -> npt.NDArray[np.int64]:
        """What the sites hold; those that have come since the last round are asked first."""
        self._ask_newcomers()
        return self._nodes.sizes()

    def _ask_newcomers(self) -> None:
        self._introduce(self._nodes.strangers())
        asked: dict[int, int] = {}  # by site, its node
        for site in np.flatnonzero(self._nodes.sizes() == 0).tolist():
            node = self._nodes.node(site)
            if node is None:
                self._silent.pop(site, None)  # whoever comes back is asked again
            elif self._silent.get(site, (None, ""))[0] != node:
                asked[site] = node
        for site, answer in super().ask(CENSUS, 0, {}, {site: {} for site in asked}):
            try:
                if answer.arrays is None:
                    raise RefusedError(answer.failure)
                held = Holdings.unpack(answer.arrays, {}).sentences
                if not held:
                    raise RefusedError("holds no sentences")
            except RefusedError as refusal:
                self._silent[site] = None if answer.lost else asked[site], str(refusal)
            else:
                self._silent.pop(site, None)
                self._nodes.holds(site, held)

    def _introduce(self, nodes: Sequence[int]) -> None:
        """Hear which numbers nodes give themselves: asked for nobody, each says that it is somebody else."""
        nothing = envelope.sealed({})

        def write(node: int) -> Letter:
            return Letter(node, envelope.question(self._question(NOBODY, 0, CENSUS), nothing, nothing))

        for node, reply in self._post.send(nodes, write):
            self._nodes.introduce(node, _stated(reply))

    def _missing(self) -> str:
        reasons: Mapping[int, str] = {site: reason for site, (_, reason) in self._silent.items()}
        absent = np.flatnonzero(self._nodes.sizes() == 0).tolist()
        named = (f"{self._nodes.names[site]} {reasons.get(site, 'is not connected')}" for site in absent)
        return "; ".join(named)


def _stated(reply: Message | str) -> int:
    """The number in the refusal of a node that was asked for nobody."""
    if isinstance(reply, str) or not reply.has_content():
        return NOBODY
    try:
        found: Any = reply.content["refusal"]
        return int(found["number"]) if found["why"] == Why.WRONG_SITE else NOBODY
    except (KeyError, TypeError, ValueError):
        return NOBODY
