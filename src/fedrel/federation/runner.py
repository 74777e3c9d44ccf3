"""Answers requests for the sites of one process: unpack what was sent, run the method's `at_site` function, pack.

Sites are served with one resident model. Each starts from the global weights and sees nothing of the others. Where
kernels can score or train several sites in one call, they do (`answers`), and every answer is the same, to the bit,
as if the site had been alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.federation.earned import Earned
from fedrel.federation.messages import Arrays, Message, RefusedError, Update
from fedrel.federation.method import Method
from fedrel.federation.predictions import BytePredictions, Predictions
from fedrel.federation.site import Site
from fedrel.federation.site_memory import Entry
from fedrel.federation.site_text import COORDINATOR

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.federation.resident import ResidentModel, Wait
    from fedrel.tensors.weights import Weights


_SINGLE = (Update, Predictions, BytePredictions)  # answers that a secure sum takes the place of
SITES_AT_ONCE, SENTENCES_AT_ONCE = 16, 4096  # that a group of sites has, at most


class Runner:
    """Runs the site's half of a method for any of the run's sites."""

    def __init__(self, method: Method, model: ResidentModel) -> None:
        self.method, self.model = method, model
        self.shapes = model.extractor.shapes()
        self._sizes = model.site_data.partition.sizes
        self._round = 0
        self._messages: dict[type[Message], Message] = {}

    def open(self, phase: str, round_: int, shared: Arrays) -> None:
        """Receive what a request sends to every site."""
        self.keep(round_, self.unpack(phase, shared))

    def keep(self, round_: int, messages: Mapping[type[Message], Message]) -> None:
        """Keep messages to every site until the round ends."""
        before = self._messages if round_ == self._round else {}
        self._round, self._messages = round_, {**before, **messages}

    def answer(
        self, phase: str, round_: int, site: int, own: Arrays, wait: Wait | None = None
    ) -> tuple[Arrays, Entry]:
        """One site's answer to the request that was opened, and the site's journal entry."""
        received = {**self._messages, **self.unpack(phase, own)}
        function = getattr(self.method, phase)
        missing = [kind.__name__ for kind in function.takes if kind not in received]
        if missing:
            raise RefusedError(f"the request for {phase} lacks {missing[0]}")
        if self.model.privacy.secure_sum and site != COORDINATOR and issubclass(function.gives, _SINGLE):
            raise RefusedError(f"{phase} would tell this site's answer by itself, and secure sums are agreed")
        covered = vars(function.gives).get("covered_by_noise", False)
        if self.model.privacy.sentence_noise and site != COORDINATOR and not covered:
            raise RefusedError(f"{phase} would tell numbers that the agreed noise does not cover")
        asked = Site(self.model, site, round_, received, wait)
        return function(asked).pack(), asked.journal.entry

    def groups(self, own: Mapping[int, Arrays], most: int = SITES_AT_ONCE) -> Iterator[dict[int, Arrays]]:
        """The sites in their order, as groups for `answers`.

        Answers of a group wait in memory for each other, so only small sites share one.
        """
        most = min(most, SITES_AT_ONCE if self.model.serves_several else 1)
        group: dict[int, Arrays] = {}
        sentences = 0
        for site, arrays in own.items():
            size = int(self._sizes[site]) if 0 <= site < len(self._sizes) else 0  # the coordinator holds none
            if group and (len(group) == most or sentences + size > SENTENCES_AT_ONCE):
                yield group
                group, sentences = {}, 0
            group[site], sentences = arrays, sentences + size
        if group:
            yield group

    def answers(
        self, phase: str, round_: int, own: Mapping[int, Arrays]
    ) -> list[tuple[Arrays, Entry] | RefusedError]:
        """Several sites' answers, in their order, or why a site refuses."""

        def answer(site: int, arrays: Arrays, wait: Wait | None) -> tuple[Arrays, Entry] | RefusedError:
            try:
                return self.answer(phase, round_, site, arrays, wait)
            except RefusedError as refusal:
                return refusal

        if len(own) > 1 and self.model.serves_several:
            from fedrel.federation.resident import side_by_side

            return side_by_side([partial(answer, site, arrays) for site, arrays in own.items()])
        return [answer(site, arrays, None) for site, arrays in own.items()]

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag, [B, R], under the given weights."""
        return self.model.score(weights, head, bags)

    def runs_kernels(self) -> bool:
        """Whether kernels do most of a site's work: then threads can run sites side by side."""
        return self.model.extractor.has_kernels

    def unpack(self, phase: str, arrays: Arrays) -> dict[type[Message], Message]:
        """The messages of a request; arrays are named `Kind.field`."""
        kinds = _kinds(type(self.method), phase)
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            kind, _, field = name.partition(".")
            parts.setdefault(kind, {})[field] = array
        for kind in parts:
            if kind not in kinds:
                raise RefusedError(f"{phase} takes no {kind}")
        return {kinds[kind]: kinds[kind].unpack(part, self.shapes) for kind, part in parts.items()}


@cache
def _kinds(method: type[Method], phase: str) -> dict[str, type[Message]]:
    """The kinds of message that a phase may be asked with, by name."""
    return {kind.__name__: kind for kind in (*getattr(method, phase).takes, *method.carried(), Earned)}
