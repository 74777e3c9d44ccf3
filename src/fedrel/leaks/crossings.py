"""What crossed in a round, and what an attacker sees in it: each site's answer, or their sum; its shadow sites.

Shadow sites are the attacker's own, which answer the requests of a round as the real ones did. They run the site's
half of the method itself, from the same global weights, on text of the same kind (Shokri et al. 2017, Membership
Inference Attacks Against Machine Learning Models). So the attacker sees what answers look like where it knows the
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer, Engine, Reported
from fedrel.federation.engines.attacks import EngineAround, update_in
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.predictions import LEVELS
from fedrel.federation.runner import Runner
from fedrel.federation.site_text import COORDINATOR
from fedrel.methods.claims import Claims, KeyedClaims, Winners, winners
from fedrel.privacy.trust import Norms, shortened
from fedrel.tensors.weights import Tensors, WeightedMean, Weights, dense

Floats = npt.NDArray[np.float64]

CLAIMS: Mapping[str, type[Claims] | type[KeyedClaims]] = {"claim": Claims, "claim_keyed": KeyedClaims}
PREDICTIONS = {"predict": 1, "predict_bytes": LEVELS}  # the requests for them, and what 1 is sent as
DISTIL, TEACHER = "distil", "Teacher.logits"  # where FedED's coordinator uses the mean of predictions

_OF_SUMS = ("Session", "Peers", "PeerShares", "Survivors")  # shadow sites answer by themselves


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a round, and the answers to it."""

    phase: str
    shared: Arrays
    own: Mapping[int, Arrays]
    answers: dict[int, Arrays] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """What is seen of one site's training, or of the sum over several: weights, or predictions of D_v."""

    sites: tuple[int, ...]
    update: Tensors | None = None
    """The weights as they crossed: of word tables only the changed rows, if sites sent those."""
    weights: Weights | None = None
    """The same whole."""
    predictions: Floats | None = None
    """[V, R], each relation's probability for each sentence of D_v."""


@dataclass(frozen=True)
class AttackedRound:
    """All that the attacker has of a round: what it knew, what it saw, and what its shadow sites answer."""

    number: int
    base: Weights
    views: Sequence[View]
    shadows: Sequence[View]
    """Of shadow sites, seen as the views are: sums, if those are sums."""
    single_shadows: Sequence[View]
    """Of each shadow site."""
    claims: Mapping[int, Claims | KeyedClaims]


class RecordingEngine(EngineAround):
    """Another engine, whose requests and answers are kept; it reports the first `sites` sites only."""

    def __init__(self, inner: Engine, sizes: npt.NDArray[np.int64], triples: int) -> None:
        super().__init__(inner)
        self._reported = Reported(sizes, triples)
        self.requests: list[Request] = []

    def holdings(self) -> Reported:
        """What the real sites hold: the coordinator draws no others."""
        return self._reported

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Pass a request on, and keep it with its answers."""
        request = Request(phase, shared, own)
        self.requests.append(request)
        for site, answer in self._inner.ask(phase, round_, shared, own):
            if answer.arrays is not None:
                request.answers[site] = answer.arrays
            yield site, answer

    def taken(self) -> list[Request]:
        """What was kept since this was last asked for."""
        found, self.requests = self.requests, []
        return found


def views(requests: Sequence[Request], base: Weights, after: Weights, *, summed: bool) -> list[View]:
    """What the attacker sees of a round that led from the weights `base` to `after`.

    Of single sites their answers; `summed`: the mean of the active sites' answers and nothing else of any of them.
    """
    if not summed:
        return [
            view_of(request.phase, site, arrays, base)
            for request in requests
            if request.phase == "train" or request.phase in PREDICTIONS
            for site, arrays in request.answers.items()
        ]
    active = {site for request in requests for site in request.own if site != COORDINATOR}
    everyone = tuple(sorted(active))
    for request in requests:
        if request.phase == DISTIL:  # the mean of predictions, or of their logarithms
            teacher = request.own[COORDINATOR][TEACHER].astype(np.float64)
            if teacher.min() < 0:
                teacher = np.exp(teacher - teacher.max(1, keepdims=True))
            return [View(everyone, predictions=teacher / teacher.sum(1, keepdims=True))]
    return [View(everyone, after, after)]


def view_of(phase: str, site: int, arrays: Arrays, base: Weights) -> View:
    """What one site's answer shows."""
    if phase in PREDICTIONS:
        return View((site,), predictions=arrays["probabilities"].astype(np.float64) / PREDICTIONS[phase])
    update = update_in(arrays, base)
    assert update is not None  # sites are asked for nothing else that is seen
    return View((site,), update, dense(base, update))


def in_cohorts(several: Sequence[View], cohort: int, base: Weights, clip: float | None = None) -> list[View]:
    """What sums over so many sites each would show, all counting the same.

    With `clip`, of updates that are no longer than that.
    """
    groups = [several[first : first + cohort] for first in range(0, len(several), cohort)]
    return [_mean(group, base, clip) for group in groups if len(group) == min(cohort, len(several))]


def _mean(several: Sequence[View], base: Weights, clip: float | None) -> View:
    sites = tuple(site for view in several for site in view.sites)
    if several[0].predictions is not None:
        logs = [
            np.log(np.maximum(view.predictions, 1e-7)) for view in several if view.predictions is not None
        ]
        mean = np.exp(np.mean(logs, axis=0))
        return View(sites, predictions=mean / mean.sum(1, keepdims=True))
    total, norms = WeightedMean(base), Norms(base)
    for view in several:
        if view.weights is not None:
            factor = min(1.0, clip / max(norms.of(view.weights), 1e-12)) if clip else 1.0
            total.add(shortened(base, view.weights, factor), 1.0)
    weights = total.result()
    return View(sites, weights, weights)


def claims_in(requests: Sequence[Request]) -> dict[int, Claims | KeyedClaims]:
    """By site, the claims that it made."""
    return {
        site: CLAIMS[request.phase].unpack(arrays, {})
        for request in requests
        if request.phase in CLAIMS
        for site, arrays in request.answers.items()
    }


class ShadowSites:
    """Answers of the shadow sites with these numbers, given by a runner that has their text.

    Its config has no secure sums: nobody hides the attacker's own answers from the attacker.
    """

    def __init__(self, runner: Runner, numbers: Sequence[int]) -> None:
        self._runner, self._numbers = runner, numbers

    def views(self, round_: int, requests: Sequence[Request], base: Weights, cohort: int) -> list[View]:
        """What the answers of each to the requests of a round show; claims win within cohorts of so many sites."""
        own: Mapping[int, Arrays] = {site: {} for site in self._numbers}
        shared: dict[str, npt.NDArray[Any]] = {}
        for request in requests:
            if request.phase in CLAIMS:
                own = self._won(round_, request, cohort)
            elif request.phase != DISTIL:
                shared |= {n: a for n, a in request.shared.items() if n.partition(".")[0] not in _OF_SUMS}
        phase = self._phase(requests)
        return [view_of(phase, site, arrays, base) for site, arrays in self._ask(phase, round_, shared, own)]

    def _phase(self, requests: Sequence[Request]) -> str:
        """The request that the answers are to; with secure sums, the one that their sum takes the place of."""
        asked = [one.phase for one in requests if one.phase == "train" or one.phase in PREDICTIONS]
        known = [*asked, *(name for name in (*PREDICTIONS, "train") if hasattr(self._runner.method, name))]
        if not known:
            raise UserError(
                "shadow sites cannot answer for this method: it neither trains nor predicts at sites",
                hint="choose fedavg, lazy-mil, feded or a method like them",
            )
        return known[0]

    def _won(self, round_: int, request: Request, cohort: int) -> dict[int, Arrays]:
        """Let the shadow sites claim: which claims of each won within its cohort."""
        kind = CLAIMS[request.phase]
        answers = self._ask(request.phase, round_, request.shared, {site: {} for site in self._numbers})
        won: dict[int, Winners] = {}
        for first in range(0, len(answers), cohort):
            won |= winners({site: kind.unpack(found, {}) for site, found in answers[first : first + cohort]})
        return {
            site: {f"Winners.{name}": array for name, array in one.pack().items()}
            for site, one in won.items()
        }

    def _ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> list[tuple[int, Arrays]]:
        self._runner.open(phase, round_, shared)
        found: list[tuple[int, Arrays]] = []
        for some in self._runner.groups(own):
            for site, answer in zip(some, self._runner.answers(phase, round_, some), strict=True):
                if isinstance(answer, RefusedError):
                    raise UserError(f"a shadow site refused {phase}: {answer}", hint="choose another method")
                found.append((site, answer[0]))
        return found
