"""Which facts does a site's text mention? What claims tell (Lazy MIL).

With `Claims`, a fact's number is the answer. With `KeyedClaims` there are digests in place of numbers. An attacker
that has the public knowledge base and text of the same kind scores its own sentences of every fact with the global
weights of every round, and takes a digest for the fact whose probabilities over the rounds are nearest to the
claimed ones. Digests are followed over rounds where they recur: in simulations they do, between real sites they do
not. Where claims carry ranks in levels, it compares ranks in levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.methods.claims import Claims, KeyedClaims, levelled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LEAST = 1e-6  # probability, so that logits are finite


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


def _as_told(known: KnownFacts, round_: int, levels: int) -> Floats:
    value = known.value[round_]
    if not levels:
        return value
    return levelled(value.astype(np.float32), known.relation, levels).astype(np.float64)


def _logit(values: Floats) -> Floats:
    clipped = np.clip(values, _LEAST, 1 - _LEAST)
    return np.log(clipped / (1 - clipped))
