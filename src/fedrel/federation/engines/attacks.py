"""Engines around another engine, which watch or change what crosses; and lying sites, for simulations.

An attack is for a table of attacks against defences (`fedrel attack`), never between real sites. It changes a
site's answers between site and coordinator. It knows the global weights, what the site would have sent, and what
all other sites send in the same round, which is more than a real liar knows. It keeps to the declared types and
ranges: anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Answer, Engine, Reported
from fedrel.federation.messages import Arrays, ModelTensors
from fedrel.privacy.trust import Norms
from fedrel.tensors.weights import Floats, Tensors, Weights, dense

if TYPE_CHECKING:
    from fedrel.data.bags import Bags

WEIGHTS = "weights/"  # how the arrays of an update's weights are called

_MODEL, _WON = "Model.weights/", "Winners.index"

LARGEST = 1e6  # of a weight that is not refused
_MANY = 10  # times the triples of the knowledge base: what a liar says that it holds


class EngineAround(Engine):
    """Starts, stops and scores as the engine in it does; what is asked and answered is the subclass's business."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the other engine."""
        self._inner.__exit__(kind, error, trace)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag; the coordinator scores by itself."""
        return self._inner.score(weights, head, bags)


def update_in(arrays: Arrays, base: Weights) -> Tensors | None:
    """The weights of an update that was trained from `base`; None of any other answer."""
    flat = {name.removeprefix(WEIGHTS): one for name, one in arrays.items() if name.startswith(WEIGHTS)}
    shapes = {name: tensor.shape for name, tensor in base.items()}
    return ModelTensors(rows=True).unpack(flat, shapes) if flat else None


class AttackedEngine(EngineAround):
    """Another engine, whose `liars` lie as the attack says.

    `agreed` are the most sentences that each site may say it holds; None if nothing was agreed.
    """

    def __init__(
        self,
        inner: Engine,
        attack: Attack,
        liars: Collection[int],
        sizes: npt.NDArray[np.int64],
        triples: int,
        agreed: npt.NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(inner)
        self._attack, self._liars = attack, set(liars)
        self._triples, self._sizes = triples, sizes.copy()
        if attack.absent:
            self._sizes[list(self._liars)] = 0
        if attack.claims_all:
            for site in self._liars:
                said = said_holdings(int(sizes[site]), triples)
                self._sizes[site] = said if agreed is None else min(said, int(agreed[site]))
        self._base: Weights = {}
        self._first: dict[int, Weights] = {}  # by liar, what it would have sent when it first took part
        self._own_claims: dict[int, npt.NDArray[np.int32]] = {}  # by liar, the sentences of its honest claims

    def holdings(self) -> Reported:
        """What the sites say that they hold."""
        return Reported(self._sizes, self._triples)

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Ask all sites, then change what the liars among them answered."""
        model = {name.removeprefix(_MODEL): t for name, t in shared.items() if name.startswith(_MODEL)}
        self._base = model or self._base
        asked = {site: self._honest_request(site, arrays) for site, arrays in own.items()}
        answers = dict(self._inner.ask(phase, round_, shared, asked))
        updates: dict[int, Weights] = {
            site: dense(self._base, update)
            for site, answer in answers.items()
            if answer.arrays is not None and (update := update_in(answer.arrays, self._base)) is not None
        }
        honest = [weights for site, weights in updates.items() if site not in self._liars]
        for site, answer in answers.items():
            if site in self._liars and answer.arrays is not None:
                arrays = self._lie(site, answer.arrays, updates.get(site), honest)
                yield site, replace(answer, arrays=arrays)
            else:
                yield site, answer

    def _honest_request(self, site: int, arrays: Arrays) -> Arrays:
        """What the site itself is asked: of sentences that it does not have, none, so that it can train at all."""
        if site not in self._liars or _WON not in arrays or site not in self._own_claims:
            return arrays
        return {**arrays, _WON: np.sort(self._own_claims[site])}

    def _lie(
        self, site: int, arrays: Arrays, update: Weights | None, honest: list[Weights]
    ) -> dict[str, npt.NDArray[Any]]:
        lie = dict(arrays)
        if update is not None:
            first = self._first.setdefault(site, update)
            if self._attack.update is not None:
                known = Knowledge(self._base, update, honest or [update], first)
                lie = {name: array for name, array in lie.items() if not name.startswith(WEIGHTS)}
                lie |= {f"{WEIGHTS}{name}": t for name, t in self._attack.update(known).items()}
            if self._attack.claims_all:
                lie["examples"] = np.asarray(self._sizes[site])
        elif self._attack.claims_all and "triple" in lie:
            self._own_claims[site] = lie["index"]
            most = min(self._triples, int(self._sizes[site]))
            lie["triple"] = lie["index"] = np.arange(most, dtype=np.int32)
            lie["value"] = np.ones(most, np.float32)
        return lie


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a liar knows when it sends its update: all weights are whole."""

    base: Weights
    own: Weights
    honest: Sequence[Weights]
    """What the honest sites send in this round; the liar's own training if there is none."""
    first: Weights
    """What the liar would have sent when it first took part."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to lie."""

    name: str
    about: str
    update: Callable[[Knowledge], Weights] | None = None
    """What is sent in place of the update; without it, the update is sent as it is."""
    claims_all: bool = False
    """Claims every triple at probability 1, and says that it holds more sentences than there are triples."""
    flips_labels: bool = False
    """Trains on its own sentences with another relation for each."""
    absent: bool = False
    """Takes no part at all: no lie, but what is lost with these sites' text."""


def sign_flip(known: Knowledge) -> Weights:
    """Ten times the update, backwards."""
    return _moved(known.base, known.own, -10.0)


def scaling(known: Knowledge) -> Weights:
    """A thousand times the update."""
    return _moved(known.base, known.own, 1000.0)


def little(known: Knowledge) -> Weights:
    """The honest mean less 1.5 standard deviations of every coordinate: no outlier, and yet a pull."""
    found = {}
    for name in known.base:
        values = np.stack([weights[name] for weights in known.honest])
        found[name] = _in_range(values.mean(axis=0) - np.float32(1.5) * values.std(axis=0))
    return found


def inner_product(known: Knowledge) -> Weights:
    """Against the honest mean, as long as an honest update usually is."""
    mean = {name: np.mean([one[name] for one in known.honest], axis=0) for name in known.base}
    norms = Norms(known.base)
    usual = float(np.median([norms.of(one) for one in known.honest]))
    return _moved(known.base, mean, -usual / max(norms.of(mean), 1e-12))


def replay(known: Knowledge) -> Weights:
    """What the site sent first, again and again: it holds the model back."""
    return known.first


def backwards(known: Knowledge) -> Weights:
    """The update, backwards: together with claims on everything, most of the weight."""
    return _moved(known.base, known.own, -1.0)


_ATTACKS = (
    Attack("sign-flip", "ten times the update, backwards", sign_flip),
    Attack("scaling", "a thousand times the update", scaling),
    Attack("little", "the honest mean less 1.5 standard deviations (a little is enough)", little),
    Attack("inner-product", "against the honest mean, as long as an honest update", inner_product),
    Attack("label-flip", "honest training on other labels", flips_labels=True),
    Attack(
        "claim-all",
        "claims all triples at 1.0, lies about its holdings, sends its update backwards",
        backwards,
        claims_all=True,
    ),
    Attack("replay", "the first update again and again", replay),
)


ATTACKS: Mapping[str, Attack] = {attack.name: attack for attack in _ATTACKS}


ABSENT = Attack(
    "absent", "the sites take no part: what any defence that leaves them out would cost", absent=True
)


def said_holdings(sentences: int, triples: int) -> int:
    """How many sentences a liar says that it holds."""
    return max(sentences, _MANY * triples)


def _moved(base: Weights, weights: Weights, factor: float) -> dict[str, Floats]:
    """`base + factor * (weights - base)`."""
    return {name: _in_range(base[name] + np.float32(factor) * (weights[name] - base[name])) for name in base}


def _in_range(tensor: Floats) -> Floats:
    return np.clip(tensor, -LARGEST, LARGEST).astype(np.float32)
