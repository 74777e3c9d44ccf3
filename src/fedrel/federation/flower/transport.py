"""Sends requests to Flower's nodes and receives the replies in order, within a deadline; and the engine over that.

`Grid.send_and_receive` polls every three seconds and returns all replies at once. Here replies are used as they
come, only as many requests are under way as the other side can work on, and a reply is fetched when its turn
has come: until then it waits in Flower's own store.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import Request
from fedrel.federation.messages import Arrays, payload
from fedrel.federation.site_text import COORDINATOR

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.data.bags import Bags
    from fedrel.federation.runner import Runner
    from fedrel.tensors.weights import Weights


MARGIN = 60.0  # seconds that Flower keeps a request beyond its deadline: machines' clocks differ
TENSORS = 4  # an answer may have so many times the tensors that were sent: weights, controls and the like
NODE_UNAVAILABLE = 5  # Flower's error when a node that has a request is no longer connected


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
