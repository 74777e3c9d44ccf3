"""The members of a federation of real sites: which node is which site, who is connected, what each holds."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flwr.app import Message
from flwr.serverapp import Grid

from fedrel.errors import UserError
from fedrel.federation.coordinator import Reported
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import RefusalCode
from fedrel.federation.flower.transport import FlowerEngine, Outgoing
from fedrel.federation.messages import HOLDINGS, Holdings, RefusedError
from fedrel.files import read_sealed, write_text
from fedrel.privacy.secret_keys import Registered

_log = logging.getLogger(__name__)

FRESH = 1.0  # seconds for which the list of connected nodes stays good
LOOK = 0.5  # seconds between two looks for sites that are not there yet
NOBODY = -1  # the site number of a request that only asks a node which site it is


class Members:
    """The sites of a federation by number, and the nodes they answer from.

    Where nodes are authenticated, `known` gives the site of each node, by its key. Without it (for tests on one
    machine only), nodes are believed when they say which site they are (`set_site`). What is known of each site is
    written to `file` (federation.json) whenever one answers.
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
                "chain": None,
            }
            for number, name in enumerate(names)
        ]
        self.run = ""

    def node(self, site: int) -> int | None:
        """The site's node, or None while it is not connected."""
        return next((node for node in reversed(self.connected()) if self._site_of.get(node) == site), None)

    def connected(self) -> list[int]:
        """All nodes that are connected now, those of unknown sites too; the latest to connect is last."""
        if time.monotonic() - self._looked > FRESH:
            now = set(self._grid.get_node_ids())
            self._here = [node for node in self._here if node in now]
            self._here += sorted(now.difference(self._here))
            self._looked = time.monotonic()
        return self._here

    def unknown_nodes(self) -> list[int]:
        """Connected nodes that have not been asked yet which site they are; none where keys tell it."""
        return [] if self.authenticated else [node for node in self.connected() if node not in self._site_of]

    def set_site(self, node: int, site: int) -> None:
        """Believe a node that it is this site."""
        self._site_of[node] = site if 0 <= site < len(self.names) else NOBODY

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many sentences each site holds; 0 where it has not reported."""
        return np.array([note["sentences"] or 0 for note in self._notes], np.int64)

    def set_size(self, site: int, sentences: int, chain: str = "") -> None:
        """Note how many sentences a site reports."""
        self._notes[site]["sentences"] = sentences
        self.note_answer(site, 0, chain)

    def note_answer(self, site: int, round_: int, chain: str = "") -> None:
        """Note that the site has answered, in the file that `fedrel federation status` reads.

        `chain` is the last value of the site's record: with it, the site's copy can be checked later.
        """
        self._notes[site] |= {"node": str(self.node(site)), "last_answer": time.time(), "round": round_}
        self._notes[site]["chain"] = chain or self._notes[site]["chain"]
        about = {"run": self.run, "round": round_, "updated": time.time(), "sites": self._notes}
        write_text(self._file, json.dumps(about, indent=1))


def run_of(file: Path) -> str | None:
    """The name of the run that a federation.json was written for, if it exists."""
    if not file.exists():
        return None
    about = read_sealed(file, "an account of a run's sites", "move the run's folder away")
    return str(about.get("run", ""))


class RemoteEngine(FlowerEngine):
    """Flower's engine for real sites, which report themselves what they hold."""

    reaches_real_sites: ClassVar[bool] = True
    _nodes: Members

    def __init__(
        self,
        *given: object,
        triples: int,
        agreed: Sequence[int | None] = (),
        taking_part: Collection[int] | None = None,
        registered: Registered | None = None,
        **named: object,
    ) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self._triples, self._agreed = triples, agreed  # the most that each site may say it holds, if agreed
        self._taking_part = range(len(self._nodes.names)) if taking_part is None else frozenset(taking_part)
        self._registered = registered
        # By site: the node that refused, or None if the request was lost on the way; and the reason.
        self._not_ready: dict[int, tuple[int | None, str]] = {}

    def wait_for_sites(self, at_least: int | None, within: float) -> None:
        """Wait until all sites have reported what they hold; `UserError` if fewer than `at_least` do in that time.

        A site that refuses is not waited for: it would refuse again. A request that was lost is sent again.
        """
        end, said = time.monotonic() + within, ""
        while True:
            self._ask_new_sites()
            ready = np.count_nonzero(self._nodes.sizes())
            settled = ready + sum(node is not None for node, _ in self._not_ready.values())
            if settled >= len(self._taking_part) or time.monotonic() > end:
                break
            if (missing := self._missing()) != said:
                _log.warning("waiting: %s", missing)
                said = missing
            time.sleep(LOOK)
        wanted = len(self._taking_part) if at_least is None else at_least
        if ready < wanted:
            problem = (
                f"{ready} of {len(self._taking_part)} sites are ready, {wanted} must be: {self._missing()}"
            )
            hint = "start or repair these sites, or set engine.min_sites to go on without them"
            raise UserError(problem, hint=hint)

    def holdings(self) -> Reported:
        """What the sites hold; those that have connected since the last round are asked first."""
        self._ask_new_sites()
        return Reported(self._nodes.sizes(), self._triples)

    def registered(self) -> Registered | None:
        """The keys that the coordinator knows the sites by."""
        return self._registered

    def _ask_new_sites(self) -> None:
        self._identify(self._nodes.unknown_nodes())
        asked: dict[int, int] = {}  # by site, its node
        for site in np.flatnonzero(self._nodes.sizes() == 0).tolist():
            node = self._nodes.node(site)
            if node is None:
                self._not_ready.pop(site, None)  # it is asked again when it comes back
            elif self._not_ready.get(site, (None, ""))[0] != node:
                asked[site] = node
        for site, answer in super().ask(HOLDINGS, 0, {}, {site: {} for site in asked}):
            try:
                if answer.arrays is None:
                    raise RefusedError(answer.failure)
                held = Holdings.unpack(answer.arrays, {}).sentences
                if not held:
                    raise RefusedError("holds no sentences")
                most = self._agreed[site] if self._agreed else None
                if most is not None and held > most:
                    raise RefusedError(
                        f"says it holds {held}, but at most {most} were agreed (federation.toml)"
                    )
            except RefusedError as refusal:
                self._not_ready[site] = None if answer.lost else asked[site], str(refusal)
            else:
                self._not_ready.pop(site, None)
                self._nodes.set_size(site, held, answer.chain)

    def _identify(self, nodes: Sequence[int]) -> None:
        """Ask nodes which site they are: a request for site -1 is refused with the node's own number."""
        nothing = codec.encode_arrays({})

        def write(node: int) -> Outgoing:
            request = self._request(NOBODY, 0, HOLDINGS)
            return Outgoing(node, codec.encode_request(request, nothing, nothing))

        for node, reply in self._transport.send(nodes, write):
            self._nodes.set_site(node, _own_number(reply))

    def _missing(self) -> str:
        reasons: Mapping[int, str] = {site: reason for site, (_, reason) in self._not_ready.items()}
        absent = np.flatnonzero(self._nodes.sizes() == 0).tolist()
        named = (
            f"{self._nodes.names[site]} {reasons.get(site, 'is not connected')}"
            for site in absent
            if site in self._taking_part
        )
        return "; ".join(named)


def _own_number(reply: Message | str) -> int:
    """The site number in a node's refusal of a request for site -1."""
    if isinstance(reply, str) or not reply.has_content():
        return NOBODY
    try:
        refusal = codec.decode_refusal(reply.content)
    except (KeyError, TypeError, ValueError):
        return NOBODY
    return refusal.number if refusal.code == RefusalCode.WRONG_SITE else NOBODY
