"""Answers requests for the sites of one process: unpack what was sent, run the method's `at_site` function, pack.

Sites are served one after the other with one resident model. Each starts from the global weights and sees
nothing of the site before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Arrays, Message, RefusedError
from fedrel.federation.method import Method
from fedrel.federation.site import Site
from fedrel.federation.site_memory import Entry

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.federation.resident import ResidentModel
    from fedrel.tensors.weights import Weights


class Runner:
    """Runs the site's half of a method for any of the run's sites."""

    def __init__(self, method: Method, model: ResidentModel) -> None:
        self.method, self.model = method, model
        self._shapes = model.extractor.shapes()
        self._round = 0
        self._messages: dict[type[Message], Message] = {}

    def open(self, phase: str, round_: int, shared: Arrays) -> None:
        """Receive what a request sends to every site."""
        self.keep(round_, self.unpack(phase, shared))

    def keep(self, round_: int, messages: Mapping[type[Message], Message]) -> None:
        """Keep messages to every site until the round ends."""
        before = self._messages if round_ == self._round else {}
        self._round, self._messages = round_, {**before, **messages}

    def answer(self, phase: str, round_: int, site: int, own: Arrays) -> tuple[Arrays, Entry]:
        """One site's answer to the request that was opened, and the site's journal entry."""
        received = {**self._messages, **self.unpack(phase, own)}
        function = getattr(self.method, phase)
        missing = [kind.__name__ for kind in function.takes if kind not in received]
        if missing:
            raise RefusedError(f"the request for {phase} lacks {missing[0]}")
        asked = Site(self.model, site, round_, received)
        return function(asked).pack(), asked.journal.entry

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
        return {kinds[kind]: kinds[kind].unpack(part, self._shapes) for kind, part in parts.items()}


@cache
def _kinds(method: type[Method], phase: str) -> dict[str, type[Message]]:
    """The kinds of message that a phase may be asked with, by name."""
    return {kind.__name__: kind for kind in (*getattr(method, phase).takes, *method.carried())}
