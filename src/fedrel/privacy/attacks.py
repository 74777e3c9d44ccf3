"""What lying sites send: for a table of attacks against defences (`fedrel attack`), never between real sites.

An attack changes a site's answers between site and coordinator. It knows the global weights, what the site would
have sent, and what all other sites send in the same round, which is more than a real liar knows. It keeps to the
declared types and ranges: anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrel.privacy.trust import Norms
from fedrel.tensors.weights import Floats, Weights

LARGEST = 1e6  # of a weight that is not refused
_MANY = 10  # times the triples of the knowledge base: what a liar says that it holds


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
