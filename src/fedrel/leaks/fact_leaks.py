"""Which facts does a site's text mention, and how frequent is each relation in it?

What claims tell of facts (Lazy MIL): with `Claims`, a fact's number is the answer. With `KeyedClaims` there are
digests in place of numbers. An attacker that has the public knowledge base and text of the same kind scores its own
sentences of every fact with the global weights of every round, and takes a digest for the fact whose probabilities
over the rounds are nearest to the claimed ones. Digests are followed over rounds where they recur: in simulations
they do, between real sites they do not. Where claims carry ranks in levels, it compares ranks in levels.

How frequent relations are: the gradient of a classifier's bias is, for each relation, how often it was predicted
less how often it was there (as Geng et al. 2021, Towards General Deep Leakage in Federated Learning, use it). So an
update's bias tells how frequent relations are; so do the sums of its rows and how far these moved, and of
predictions their mean. Shadow sites, whose shares are known, teach the attacker how much a difference from them
means, and which of these signs to go by: the one that tells each of them best from the others. Claims with the
numbers of facts say it outright: a fact's number names its relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import BIAS, CLASSIFIER
from fedrel.leaks.crossings import AttackedRound, View
from fedrel.methods.claims import Claims, KeyedClaims, levelled
from fedrel.tensors.weights import Weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LEAST = 1e-6  # probability, so that logits are finite

CLAIMED = "claims"
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class FoundFacts:
    """Facts of one site: how many were named, how many of them are right, how many there are."""

    named: int
    right: int
    there: int
    by_fame: int
    """How many would be right if the attacker named as many of those facts that its own text mentions most."""


@dataclass(frozen=True)
class KnownFacts:
    """Facts that the attacker has sentences of: number, relation, how many; by round the best one's p(r|s)."""

    triple: Ints
    relation: Ints
    sentences: Ints
    value: Mapping[int, Floats]


def found_facts(
    claims: Mapping[int, Sequence[tuple[int, Claims | KeyedClaims]]],
    facts: Mapping[int, Ints],
    is_fact: npt.NDArray[np.bool_],
    known: KnownFacts,
    levels: int,
) -> list[FoundFacts] | None:
    """Of every site, from its claims by round; None if nobody claimed anything.

    `facts` are the numbers of the triples that a site's text mentions; those of `NA` are no facts (`is_fact`).
    """
    found = []
    facts_known = np.flatnonzero(is_fact[known.triple])
    best_known = known.triple[facts_known[np.argsort(-known.sentences[facts_known], kind="stable")]]
    for site, own in claims.items():
        numbered = [one.triple for _, one in own if isinstance(one, Claims)]
        if numbered:
            named = np.unique(np.concatenate(numbered)).astype(np.int64)
        else:
            named = matched([(n, one) for n, one in own if isinstance(one, KeyedClaims)], known, levels)
        named, true = (np.unique(triples[is_fact[triples]]) for triples in (named, facts[site]))
        famous = best_known[: len(named)]
        right, guessed = (len(np.intersect1d(one, true)) for one in (named, famous))
        found.append(FoundFacts(len(named), right, len(true), guessed))
    return found or None


def matched(claims: Sequence[tuple[int, KeyedClaims]], known: KnownFacts, levels: int) -> Ints:
    """The facts that digests are taken for: each digest's nearest; of digests with the same one, the nearest."""
    digests: dict[bytes, dict[int, float]] = {}
    for round_, one in claims:
        for digest, value in zip(one.digest, one.value.tolist(), strict=True):
            digests.setdefault(digest.tobytes(), {})[round_] = value
    rounds = [round_ for round_, _ in claims]
    seen = np.array([[values.get(n, np.nan) for n in rounds] for values in digests.values()])
    if not len(seen) or not len(known.triple):
        return np.zeros(0, np.int64)
    expected = np.stack([_as_told(known, n, levels) for n in rounds], axis=1)  # [facts, rounds]
    seen = seen if levels else _logit(seen)
    expected = expected if levels else _logit(expected)
    there = ~np.isnan(seen)
    gaps = np.where(there, seen, 0.0)
    # The mean over the rounds of a digest of (seen - expected)^2, for all digests and facts at once.
    square = (gaps**2).sum(1)[:, None] - 2 * gaps @ expected.T + there.astype(float) @ (expected**2).T
    distance = square / there.sum(1)[:, None]
    nearest, how_near = distance.argmin(1), distance.min(1)
    order = np.lexsort((how_near, nearest))
    first = order[np.diff(nearest[order], prepend=-1) > 0]
    found: Ints = known.triple[nearest[first]]
    return found


def precision_and_recall_of_facts(found: Sequence[FoundFacts]) -> tuple[float, float, float]:
    """Of all sites together: precision, recall, and the precision of guessing."""
    named, right, there, guessed = (
        sum(getattr(one, what) for one in found) for what in ("named", "right", "there", "by_fame")
    )
    return right / max(named, 1), right / max(there, 1), guessed / max(named, 1)


@dataclass(frozen=True)
class FoundShares:
    """Of one site: each relation's share as it was found, as it is, and as it is at an average site."""

    found: Floats
    true: Floats
    average: Floats
    sign: str
    """What it was found by."""


def found_shares(
    round_: AttackedRound, shares: Callable[[int], Floats], relation_of: npt.NDArray[np.int32]
) -> list[FoundShares]:
    """The shares that each view tells, of each of its sites.

    `shares` are those of a site's text; `relation_of` is the relation of each fact of the knowledge base.
    """
    known = np.stack([shares(view.sites[0]) for view in round_.single_shadows])
    signs = [signs_of(view, round_.base) for view in round_.single_shadows]
    seen = {name: np.stack([one[name] for one in signs]) for name in signs[0]}
    chosen = max(seen, key=lambda name: _told_at_shadows(seen[name], known))
    average = known.mean(0)
    found = []
    for view in round_.views:
        told = told_shares(seen[chosen], known, signs_of(view, round_.base)[chosen])
        for site in view.sites:
            claims = round_.claims.get(site)
            if isinstance(claims, Claims):
                counts = np.bincount(relation_of[claims.triple], minlength=len(average))
                found.append(FoundShares(counts / max(counts.sum(), 1), shares(site), average, CLAIMED))
            else:
                found.append(FoundShares(told, shares(site), average, chosen))
    return found


def told_shares(signs: Floats, known: Floats, sign: Floats) -> Floats:
    """The shares that a sign tells, by a line through the signs [m, R] of sites whose shares [m, R] are known."""
    average, usual = known.mean(0), signs.mean(0)
    slope = ((signs - usual) * (known - average)).sum(0) / np.maximum(
        ((signs - usual) ** 2).sum(0), _NO_SPREAD
    )
    told: Floats = average + slope * (sign - usual)
    return told


def _told_at_shadows(signs: Floats, known: Floats) -> float:
    """How well a sign tells each site of the others: r of the differences from the average."""
    rest = [np.arange(len(known)) != own for own in range(len(known))]
    told = [told_shares(signs[some], known[some], sign) for some, sign in zip(rest, signs, strict=True)]
    usual = np.stack([known[some].mean(0) for some in rest])
    return correlation((np.stack(told) - usual).ravel(), (known - usual).ravel())


def signs_of(view: View, base: Weights) -> dict[str, Floats]:
    """By name, numbers for each relation that may grow with its share at the site, [R]."""
    if view.predictions is not None:
        most = np.bincount(view.predictions.argmax(1), minlength=view.predictions.shape[1])
        return {"mean prediction": view.predictions.mean(0), "likeliest": most / len(view.predictions)}
    assert view.weights is not None, "a view has weights or predictions"
    rows = view.weights[CLASSIFIER].astype(np.float64)
    moved = rows - base[CLASSIFIER]
    found = {"sums of rows": rows.sum(1), "lengths of steps": np.linalg.norm(moved, axis=1)}
    return ({BIAS: view.weights[BIAS].astype(np.float64)} if BIAS in view.weights else {}) | found


def correlations(found: Sequence[FoundShares]) -> tuple[float, float, float]:
    """Pearson's r between found and true shares, over all sites and relations.

    Then the same of how far they are from the average site's, which is what nobody knew before; and r of one who
    takes every site for the average one.
    """
    told, true, average = (
        np.stack([getattr(one, what) for one in found]) for what in ("found", "true", "average")
    )
    beyond = correlation((told - average).ravel(), (true - average).ravel())
    return correlation(told.ravel(), true.ravel()), beyond, correlation(average.ravel(), true.ravel())


def correlation(found: Floats, true: Floats) -> float:
    """Pearson's r; 0 where one side does not vary."""
    found, true = found - found.mean(), true - true.mean()
    length = float(np.sqrt((found**2).sum() * (true**2).sum()))
    return float((found * true).sum() / length) if length > 0 else 0.0


def _as_told(known: KnownFacts, round_: int, levels: int) -> Floats:
    value = known.value[round_]
    if not levels:
        return value
    return levelled(value.astype(np.float32), known.relation, levels).astype(np.float64)


def _logit(values: Floats) -> Floats:
    clipped = np.clip(values, _LEAST, 1 - _LEAST)
    return np.log(clipped / (1 - clipped))
