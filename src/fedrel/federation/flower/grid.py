"""The coordinator's half under Flower: requests are sent to nodes, and replies come in order, within a deadline;
the engine over that; and the members of a federation of real sites.

`Grid.send_and_receive` polls every three seconds and returns all replies at once. Here replies are used as they
come, only as many requests are under way as the other side can work on, and a reply is fetched when its turn
has come: until then it waits in Flower's own store.

Of real sites it is known which node is which site, who is connected, and what each holds.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer, Engine, Reported
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import RefusalCode, Request
from fedrel.federation.messages import HOLDINGS, Arrays, Holdings, RefusedError, payload
from fedrel.federation.site_text import COORDINATOR
from fedrel.files import read_sealed, write_text
from fedrel.privacy.secret_keys import Registered

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.data.bags import Bags
    from fedrel.federation.runner import Runner
    from fedrel.tensors.weights import Weights

MARGIN = 60.0  # seconds that Flower keeps a request beyond its deadline: machines' clocks differ
TENSORS = 4  # an answer may have so many times the tensors that were sent: weights, controls and the like
NODE_UNAVAILABLE = 5  # Flower's error when a node that has a request is no longer connected

_log = logging.getLogger(__name__)

FRESH = 1.0  # seconds for which the list of connected nodes stays good
LOOK = 0.5  # seconds between two looks for sites that are not there yet
NOBODY = -1  # the site number of a request that only asks a node which site it is


class Outgoing(NamedTuple):
    """A request to send: to which node, and its records."""

    node: int
    content: RecordDict


SOON, SHARE = (
    0.05,
    0.1,
)  # seconds before the second look for a reply; then a share of the time that it took so far


class Transport:
    """Sends requests by a grid. `every`: most seconds between two polls; `window`: how many may be under way."""

    def __init__(
        self, grid: Grid, *, every: float, window: int | None = None, deadline: float | None = None
    ) -> None:
        self._grid, self._every, self._window, self._deadline = grid, every, window, deadline

    def send(
        self, sites: Sequence[int], write: Callable[[int], Outgoing | None]
    ) -> Iterator[tuple[int, Message | str]]:
        """Send each site its request; yield the replies in the same order, or why there is none.

        `write` makes a site's request just before it is sent, so that no more than a window of them is in memory;
        it returns None for a site that is not connected.
        """
        end = None if self._deadline is None else time.monotonic() + self._deadline
        waiting = deque(sites)
        under_way: dict[int, str | None] = {}
        for site in sites:
            while waiting and (self._window is None or len(under_way) < self._window):
                following = waiting.popleft()
                outgoing = write(following)
                under_way[following] = self._push(outgoing) if outgoing else None
            message_id = under_way[site]
            yield site, "is not connected" if message_id is None else self._await(message_id, end)
            del under_way[site]

    def _push(self, outgoing: Outgoing) -> str | None:
        ttl = None if self._deadline is None else self._deadline + MARGIN
        message = Message(outgoing.content, dst_node_id=outgoing.node, message_type="query", ttl=ttl)
        pushed = list(self._grid.push_messages([message]))
        return pushed[0] if pushed else None

    def _await(self, message_id: str, end: float | None) -> Message | str:
        """The reply to a request; after the deadline, only if it is there already."""
        begun = time.monotonic()
        while True:
            for reply in self._grid.pull_messages([message_id]):
                return reply
            if end is not None and time.monotonic() >= end:
                return f"did not answer within {self._deadline:g} seconds"
            time.sleep(min(self._every, max(SOON, SHARE * (time.monotonic() - begun))))


class Nodes(Protocol):
    """Which of Flower's nodes answers for which site."""

    def node(self, site: int) -> int | None:
        """The site's node, or None while it is not connected."""

    def note_answer(self, site: int, round_: int, chain: str = "") -> None:
        """Note that the site has answered, and the last chain value of its record."""


class FlowerEngine(Engine):
    """Sites behind Flower's nodes. The coordinator's own work is done in this process, by `runner`."""

    def __init__(
        self,
        transport: Transport,
        nodes: Nodes,
        runner: Runner,
        config: Config,
        *,
        run: str,
        artefacts: Mapping[str, str],
        journal: bool,
        largest: int | None = None,
    ) -> None:
        self._transport, self._nodes, self._local = transport, nodes, LocalEngine(runner)
        self._config, self._run, self._artefacts = config.model_dump(mode="json"), run, dict(artefacts)
        self._journal = journal  # whether answers bring it
        self._largest = largest  # bytes of an answer beside the model's tensors; None: any number
        self._sent = 0  # bytes of the largest request so far, which has the model

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Send one request to the sites in `own`; answers come back in their order."""
        if COORDINATOR in own:
            yield from self._local.ask(phase, round_, shared, own)
            return
        common = codec.encode_arrays(shared)
        self._sent = max(self._sent, payload(shared) + max(map(payload, own.values()), default=0))

        def write(site: int) -> Outgoing | None:
            node = self._nodes.node(site)
            if node is None:
                return None
            request = self._request(site, round_, phase)
            return Outgoing(node, codec.encode_request(request, common, codec.encode_arrays(own[site])))

        for site, reply in self._transport.send(list(own), write):
            answer = self._read(reply)
            if answer.arrays is not None:
                self._nodes.note_answer(site, round_, answer.chain)
            yield site, answer

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag: the coordinator evaluates on its own sentences."""
        return self._local.score(weights, head, bags)

    def _read(self, reply: Message | str) -> Answer:
        """What came back from a site, or why nothing did."""
        if isinstance(reply, str):
            return Answer(None, failure=reply, lost=True)
        if not reply.has_content():  # an error's text may come from a site, so only its number is used
            gone = reply.error.code == NODE_UNAVAILABLE
            failure = "is no longer connected" if gone else f"failed in Flower (its error {reply.error.code})"
            return Answer(None, failure=failure, lost=True)
        largest = None if self._largest is None else self._largest + TENSORS * self._sent
        return codec.decode_answer(reply.content, journal=self._journal, largest=largest)

    def _request(self, site: int, round_: int, phase: str) -> Request:
        return Request(self._run, self._config, self._artefacts, site, round_, phase)


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
