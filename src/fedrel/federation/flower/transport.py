"""Letters to nodes and their replies, in the order of the letters, within a deadline.

`Grid.send_and_receive` waits three seconds at a time and hands over everything at once. Here replies are used as
they come, only so many letters are under way as the other side can work on, and a reply is fetched when its turn
has come: until then it waits in Flower's own store.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.local import LocalEngine
from fedrel.federation.flower import codec as envelope
from fedrel.federation.flower.codec import Question
from fedrel.federation.messages import Arrays
from fedrel.federation.site import COORDINATOR

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.data.bags import Bags
    from fedrel.federation.runner import Desk
    from fedrel.tensors.weights import Weights


SPARE = 60.0  # seconds that Flower keeps a letter beyond its deadline: clocks of machines differ


class Letter(NamedTuple):
    """A question on its way: to which node, in which envelope."""

    node: int
    content: RecordDict


class Post:
    """Sends letters by a grid."""

    def __init__(
        self, grid: Grid, *, every: float, window: int | None = None, deadline: float | None = None
    ) -> None:
        self._grid, self._every, self._window, self._deadline = grid, every, window, deadline

    def send(
        self, sites: Sequence[int], write: Callable[[int], Letter | None]
    ) -> Iterator[tuple[int, Message | str]]:
        """Send each site its letter; yield the replies in the same order, or why there is none.

        Letters are written when their time comes, so that no more than a window of them takes up memory. For a
        site that cannot be reached, there is none.
        """
        end = None if self._deadline is None else time.monotonic() + self._deadline
        waiting = deque(sites)
        under_way: dict[int, str | None] = {}
        for site in sites:
            while waiting and (self._window is None or len(under_way) < self._window):
                following = waiting.popleft()
                letter = write(following)
                under_way[following] = self._push(letter) if letter else None
            number = under_way[site]
            yield site, "is not connected" if number is None else self._await(number, end)
            del under_way[site]

    def _push(self, letter: Letter) -> str | None:
        ttl = None if self._deadline is None else self._deadline + SPARE
        message = Message(letter.content, dst_node_id=letter.node, message_type="query", ttl=ttl)
        pushed = list(self._grid.push_messages([message]))
        return pushed[0] if pushed else None

    def _await(self, number: str, end: float | None) -> Message | str:
        """The reply to a letter; once the deadline is past, only if it has come already."""
        while True:
            for reply in self._grid.pull_messages([number]):
                return reply
            if end is not None and time.monotonic() >= end:
                return f"did not answer within {self._deadline:g} seconds"
            time.sleep(self._every)


NODE_UNAVAILABLE = 5  # Flower's error when a node that has a letter does not show up any more


class Nodes(Protocol):
    """Which node of Flower's answers for which site."""

    def node(self, site: int) -> int | None:
        """The site's node, or None while it is not connected."""

    def heard(self, site: int, round_: int) -> None:
        """Take note that the site has answered."""


class FlowerEngine:
    """Sites behind Flower's nodes. What the coordinator does at its own desk, it does here, in this process."""

    def __init__(
        self,
        post: Post,
        nodes: Nodes,
        desk: Desk,
        config: Config,
        *,
        run: str,
        artefacts: Mapping[str, str],
        journal: bool,
    ) -> None:
        self._post, self._nodes, self._local = post, nodes, LocalEngine(desk)
        self._config, self._run, self._artefacts = config.model_dump_json(), run, dict(artefacts)
        self._journal = journal  # whether answers bring it

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Put one question to the sites in `own`; answers come back in their order."""
        if COORDINATOR in own:
            yield from self._local.ask(phase, round_, shared, own)
            return
        common = envelope.sealed(shared)

        def write(site: int) -> Letter | None:
            node = self._nodes.node(site)
            if node is None:
                return None
            asked = self._question(site, round_, phase)
            return Letter(node, envelope.question(asked, common, envelope.sealed(own[site])))

        for site, reply in self._post.send(list(own), write):
            answer = self.read(reply)
            if answer.arrays is not None:
                self._nodes.heard(site, round_)
            yield site, answer

    def read(self, reply: Message | str) -> Answer:
        """What came back from a site, or why nothing did."""
        if isinstance(reply, str):
            return Answer(None, failure=reply, lost=True)
        if not reply.has_content():  # an error's text may come from a site, so only its number is used
            gone = reply.error.code == NODE_UNAVAILABLE
            failure = "is no longer connected" if gone else f"failed in Flower (its error {reply.error.code})"
            return Answer(None, failure=failure, lost=True)
        return envelope.open_answer(reply.content, journal=self._journal)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag: the coordinator evaluates on its own sentences."""
        return self._local.score(weights, head, bags)

    def _question(self, site: int, round_: int, phase: str) -> Question:
        return Question(self._run, self._config, self._artefacts, site, round_, phase)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to stop: nodes are not the engine's."""
