"""The one model that a process keeps in memory for all its sites, with the data it reads and how it is trained.

Several sites may be served side by side on one thread: what they need at the same time is computed in one call.
Each site's function runs until it asks for work that others may need as well (`Wait`); then the next one does.
When all have asked or returned, the work is done for all that asked for it, and they go on with what it found, in
the same order. Nothing runs in parallel, and no function is interrupted anywhere else.
"""

from __future__ import annotations

import contextvars
import importlib.util
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.config.config_sections import PrivacySection
from fedrel.data.bags import Bags, joined, slices
from fedrel.federation.site_memory import SumNotes
from fedrel.privacy.secret_keys import Secrets, SimulatedSecrets
from fedrel.seeding import derive, numpy_generator

if TYPE_CHECKING:
    from fedrel.config.schema import Training
    from fedrel.extractors.base import Extractor, Fitted
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.objective import DPSteps, Objective
    from fedrel.federation.site_data import SiteData
    from fedrel.federation.site_memory import SiteStates
    from fedrel.privacy.site_rules import SiteRules
    from fedrel.tensors.weights import Tensors, Weights


Result = TypeVar("Result")
Wanted = TypeVar("Wanted")
Found = TypeVar("Found")


class ResidentModel:
    """A model that stays in memory; each site starts it from the global weights again.

    `new_extractor` builds the model, and another one where a method needs two. `rules` are what a real site keeps
    to itself and allows, with what it signs with; a simulation has no rules, and makes up secrets.
    """

    def __init__(
        self,
        site_data: SiteData,
        new_extractor: Callable[[], Extractor],
        training: Training,
        seed: int,
        states: SiteStates,
        rules: SiteRules | None = None,
        privacy: PrivacySection | None = None,
    ) -> None:
        self.site_data, self.training, self.seed = site_data, training, seed
        self.states, self.rules = states, rules
        self.secrets: Secrets | None = rules.secrets if rules else SimulatedSecrets(seed)
        self.notes = SumNotes(rules.sums) if rules and rules.sums else states.notes
        self.privacy = privacy or PrivacySection()
        self.extractor = new_extractor()
        self._new_extractor = new_extractor
        self._others: dict[str, Extractor] = {}

    def initial_weights(self) -> Weights:
        """The weights that a run begins with, computed anew from the seed and what was published."""
        return self._new_extractor().state()

    def other(self, role: str) -> Extractor:
        """A second model for methods that compare two; one for each role, kept in memory too."""
        if role not in self._others:
            self._others[role] = self._new_extractor()
        return self._others[role]

    def batch(self, bags: Bags) -> Batch:
        """Gather bags from the corpus."""
        return self.site_data.inputs.batch(bags, self.training.device)

    def can_fit(self, head: str) -> bool:
        """Whether the extractor's own kernels can train this bag head with the config's optimiser settings."""
        training = self.training
        plain = training.optimiser == "sgd" and training.clip is None and not training.follows_run
        return plain and self.extractor.can_fit(head)

    @property
    def serves_several(self) -> bool:
        """Whether kernels can score and train several sites in one call."""
        return self.extractor.reads_separately and _has_greenlet()

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag, [B, R], under the given weights."""
        import torch

        self.extractor.begin(weights)
        with torch.inference_mode():
            parts = [
                self.extractor.probabilities(head, self.batch(part)).cpu().numpy()
                for part in slices(bags, self.site_data.inputs.at_once)
            ]
        return np.concatenate(parts)

    def sentence_probabilities(self, bags: Bags) -> npt.NDArray[np.float32]:
        """p(r|s) of every sentence, [S, R], in order, without dropout, as the model is now."""
        import torch

        from fedrel.extractors.heads import sentence_probabilities

        with torch.inference_mode():
            parts = [
                sentence_probabilities(self.extractor, self.batch(part)).cpu().numpy()
                for part in slices(bags, self.site_data.inputs.at_once)
            ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def several_sentence_probabilities(
        self, weights: Weights, several: Sequence[Bags]
    ) -> list[npt.NDArray[np.float32]]:
        """The same for several sites under the given weights: sentences are read in one call.

        Each site's vectors are classified by themselves: a product of more rows may be rounded differently.
        """
        import torch

        self.extractor.begin(weights)
        with torch.inference_mode():
            vectors = self.extractor.encode(self.batch(joined(several)))
            parts = torch.split(vectors, [len(bags.rows) for bags in several])
            return [self.extractor.classifier(part.clone()).softmax(1).numpy() for part in parts]

    def fit(self, objective: Objective, round_: int, site: int, bags: Bags) -> Fitted:
        """Train all E epochs of an objective, as the model is now, with the extractor's kernels."""
        return self.extractor.fit(
            self.batch(bags),
            self._orders(round_, site, bags),
            batch_size=self.training.batch_size,
            lr=self.training.learning_rate_in(round_),
            weight_decay=self.training.weight_decay,
            seed=derive(self.seed, "dropout", round_, site),
            objective=objective,
        )

    def fit_with_noise(
        self, objective: Objective, round_: int, site: int, bags: Bags, steps: DPSteps
    ) -> Fitted:
        """The same with DP-SGD."""
        return self.extractor.fit_with_noise(
            self.batch(bags),
            steps,
            lr=self.training.learning_rate_in(round_),
            weight_decay=self.training.weight_decay,
            seed=derive(self.seed, "dropout", round_, site),
            objective=objective,
        )

    def fit_several(
        self, weights: Weights, objective: Objective, round_: int, several: Sequence[tuple[int, Bags]]
    ) -> list[tuple[Fitted, Tensors]]:
        """The same for several sites, given by number and bags, each from these weights; and their updates."""
        self.extractor.begin(weights)
        return self.extractor.fit_several(
            self.batch(joined([bags for _, bags in several])),
            [self._orders(round_, site, bags) for site, bags in several],
            batch_size=self.training.batch_size,
            lr=self.training.learning_rate_in(round_),
            weight_decay=self.training.weight_decay,
            seeds=[derive(self.seed, "dropout", round_, site) for site, _ in several],
            objective=objective,
        )

    def _orders(self, round_: int, site: int, bags: Bags) -> list[npt.NDArray[np.int64]]:
        """The orders in which a site trains on its bags, one for each epoch."""
        shuffle = numpy_generator(self.seed, "shuffle", round_, site)
        return [shuffle.permutation(len(bags)) for _ in range(self.training.epochs)]


class Wait(Protocol):
    """How a function asks for work."""

    def __call__(
        self, key: Hashable, work: Callable[[Sequence[Wanted]], Sequence[Found]], wanted: Wanted
    ) -> Found:
        """What `work` finds for `wanted`; it is called once for all functions that wait with the same key."""


def side_by_side(functions: Sequence[Callable[[Wait], Result]]) -> list[Result]:
    """What the functions return, in their order; what one of them raises is raised here."""
    from greenlet import getcurrent, greenlet

    caller = getcurrent()

    def wait(key: Hashable, work: Callable[..., Any], wanted: Any) -> Any:
        return caller.switch((key, work, wanted))

    running = {number: greenlet(function) for number, function in enumerate(functions)}
    for one in running.values():
        one.gr_context = contextvars.copy_context()
    said: dict[int, Any] = dict.fromkeys(running, wait)  # what each is told next
    returned: dict[int, Result] = {}
    while running:
        asked: dict[Hashable, tuple[Callable[..., Any], list[int], list[Any]]] = {}
        for number, one in list(running.items()):
            answer = one.switch(said.pop(number))
            if one.dead:
                returned[number] = answer
                del running[number]
            else:
                key, work, wanted = answer
                _, numbers, each = asked.setdefault(key, (work, [], []))
                numbers.append(number)
                each.append(wanted)
        for work, numbers, each in asked.values():
            said |= zip(numbers, work(each), strict=True)
    return [returned[number] for number in range(len(functions))]


@cache
def _has_greenlet() -> bool:
    return importlib.util.find_spec("greenlet") is not None
