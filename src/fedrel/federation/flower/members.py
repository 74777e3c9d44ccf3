"""Who is who among the nodes, who is there, and what each site holds."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message
from flwr.serverapp import Grid

from fedrel.errors import UserError
from fedrel.federation.flower import codec as envelope
from fedrel.federation.flower.codec import Why
from fedrel.federation.flower.transport import FlowerEngine, Letter
from fedrel.federation.messages import CENSUS, Holdings, RefusedError
from fedrel.files import write_text

FRESH = 1.0  # seconds that a look at who is connected stays good


class Roster:
    """The sites of a federation, by number, and the nodes they answer from.

    Where nodes are authenticated, the coordinator knows from their keys which site each is. Without that, which is
    for tests on one machine only, they are taken at their word (`introduce`).
    """

    def __init__(self, grid: Grid, names: Sequence[str], known: Mapping[int, int] | None, file: Path) -> None:
        self.names, self._grid, self._file = tuple(names), grid, file
        self.authenticated = known is not None
        self._site_of = dict(known or {})  # by node
        self._here: list[int] = []
        self._looked = -np.inf
        self._notes: list[dict[str, Any]] = [
            {
                "number": number,
                "name": name,
                "node": None,
                "sentences": None,
                "last_answer": None,
                "round": None,
            }
            for number, name in enumerate(names)
        ]
        self.run = ""

    def node(self, site: int) -> int | None:
        """The site's node, or None while it is not connected."""
        return next((node for node in reversed(self.connected()) if self._site_of.get(node) == site), None)

    def connected(self) -> list[int]:
        """All nodes that are there now, those of unknown sites too; the last to come, last."""
        if time.monotonic() - self._looked > FRESH:
            now = set(self._grid.get_node_ids())
            self._here = [node for node in self._here if node in now]
            self._here += sorted(now.difference(self._here))
            self._looked = time.monotonic()
        return self._here

    def strangers(self) -> list[int]:
        """Connected nodes that have not been asked yet who they are; none where keys tell."""
        return [] if self.authenticated else [node for node in self.connected() if node not in self._site_of]

    def introduce(self, node: int, site: int) -> None:
        """Take a node at its word."""
        self._site_of[node] = site if 0 <= site < len(self.names) else -1

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many sentences each site holds, none where it has not said."""
        return np.array([note["sentences"] or 0 for note in self._notes], np.int64)

    def holds(self, site: int, sentences: int) -> None:
        """Take note of what a site has said."""
        self._notes[site]["sentences"] = sentences
        self.heard(site, 0)

    def heard(self, site: int, round_: int) -> None:
        """Take note that the site has answered; whoever watches may read the file at any time."""
        self._notes[site] |= {"node": str(self.node(site)), "last_answer": time.time(), "round": round_}
        about = {"run": self.run, "round": round_, "updated": time.time(), "sites": self._notes}
        write_text(self._file, json.dumps(about, indent=1))


def run_of(file: Path) -> str | None:
    """The name of the run that a roster was written for, if there is one."""
    if not file.exists():
        return None
    name: str = json.loads(file.read_text(encoding="utf-8"))["run"]
    return name


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
            hint = "start or mend these sites, or set engine.min_sites to go on without them"
            raise UserError(problem, hint=hint)

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
