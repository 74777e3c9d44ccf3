"""Where a process does sites' work: one resident model, the corpus columns, the method.

Sites come to a desk one after the other; each starts from the global weights again and finds nothing of the one
before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices
from fedrel.federation.journal import Entry
from fedrel.federation.messages import Arrays, Message, RefusedError
from fedrel.federation.site import Site
from fedrel.federation.site_data import Materials

if TYPE_CHECKING:
    from fedrel.config.schema import Training
    from fedrel.extractors.base import Batch, Extractor
    from fedrel.federation.method import Method
    from fedrel.federation.site_state import SiteStates
    from fedrel.tensors.weights import Weights


class Desk:
    """Where a process answers for sites, with one resident model."""

    def __init__(
        self,
        materials: Materials,
        extractor: Callable[[], Extractor],
        method: Method,
        training: Training,
        seed: int,
        states: SiteStates,
        triple_key: bytes | None = None,
    ) -> None:
        self.materials, self.method, self.states = materials, method, states
        self.training, self.seed = training, seed
        self.triple_key = triple_key  # the sites' own; none in a simulation
        self.extractor = extractor()
        self._shapes = self.extractor.shapes()
        self._new_extractor = extractor
        self._others: dict[str, Extractor] = {}
        self._round = 0
        self._messages: dict[type[Message], Message] = {}

    def open(self, phase: str, round_: int, shared: Arrays) -> None:
        """Take in what a question sends to every site."""
        self.keep(round_, self.unpack(phase, shared))

    def keep(self, round_: int, messages: Mapping[type[Message], Message]) -> None:
        """Have messages to every site at hand until the round ends."""
        before = self._messages if round_ == self._round else {}
        self._round, self._messages = round_, {**before, **messages}

    def answer(self, phase: str, round_: int, site: int, own: Arrays) -> tuple[Arrays, Entry]:
        """One site's answer to the question that was opened, and the site's journal entry."""
        received = {**self._messages, **self.unpack(phase, own)}
        ask = getattr(self.method, phase)
        missing = [kind.__name__ for kind in ask.takes if kind not in received]
        if missing:
            raise RefusedError(f"the request for {phase} lacks {missing[0]}")
        asked = Site(self, site, round_, received)
        return ask(asked).pack(), asked.journal.entry

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each test bag, [B, R], under the given weights."""
        import torch

        self.extractor.begin(weights)
        with torch.inference_mode():
            parts = [
                self.extractor.probabilities(head, self.batch(part)).cpu().numpy()
                for part in slices(bags, self.materials.inputs.at_once)
            ]
        return np.concatenate(parts)

    def other(self, role: str) -> Extractor:
        """A second model for methods that compare with another one; resident too, one for each role."""
        if role not in self._others:
            self._others[role] = self._new_extractor()
        return self._others[role]

    def batch(self, bags: Bags) -> Batch:
        """Gather bags from the corpus."""
        return self.materials.inputs.batch(bags, self.training.device)

    def can_fit(self, head: str) -> bool:
        """Whether the extractor's own kernels train a bag head as the config asks, if a method asks for no more."""
        training = self.training
        plain = training.optimiser == "sgd" and training.clip is None and not training.warmup
        return plain and self.extractor.can_fit(head)

    def trains_by_kernels(self) -> bool:
        """Whether they do all of a site's training, so that it hardly needs the interpreter."""
        head = self.method.kernel_head()
        return head is not None and self.can_fit(head)

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
