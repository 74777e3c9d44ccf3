"""The coordinator's half under Flower: an engine like the others, whose questions travel as Flower's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import numpy.typing as npt
from flwr.app import Message

from fedrel.federation.coordinator import Answer
from fedrel.federation.flower import envelope
from fedrel.federation.flower.envelope import Question
from fedrel.federation.flower.post import Letter, Post
from fedrel.federation.local import LocalEngine
from fedrel.federation.messages import Arrays
from fedrel.federation.site import COORDINATOR

if TYPE_CHECKING:
    from fedrel.config import Config
    from fedrel.data.bags import Bags
    from fedrel.federation.desk import Desk
    from fedrel.federation.weights import Weights

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
