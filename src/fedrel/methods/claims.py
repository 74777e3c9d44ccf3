"""Lazy MIL's claims: what a site says about its triples, and which claims win (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Array, Message, RefusedError
from fedrel.privacy.trust import most_wins, ranks

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.federation.site import Site

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Claims(Message):
    """Up: for each triple that a site's text mentions, its best sentence's probability and index."""

    triple: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]
    """The triple's number in the knowledge base."""
    value: Annotated[npt.NDArray[np.float32], Array("float32", ("claims",), low=0, high=1)]
    """p(r|s) of the triple's best sentence, or its rank at the site."""
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]
    """That sentence's index at the site; of a real site, the claim's own place in this list."""

    def keys(self) -> npt.NDArray[Any]:
        """What tells one triple from another."""
        return self.triple


@dataclass(frozen=True, slots=True)
class KeyedClaims(Message):
    """Up: the same with HMAC-SHA256 digests for triples, under a key that the coordinator does not have."""

    digest: Annotated[npt.NDArray[np.uint8], Array("uint8", ("claims", 32))]
    """The triple's digest; between real sites, another one in every round."""
    value: Annotated[npt.NDArray[np.float32], Array("float32", ("claims",), low=0, high=1)]
    """p(r|s) of the triple's best sentence, or its rank at the site."""
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]
    """That sentence's index at the site; of a real site, the claim's own place in this list."""

    def keys(self) -> npt.NDArray[Any]:
        """The digests as 32-byte strings."""
        return np.ascontiguousarray(self.digest).view("V32").reshape(-1)


@dataclass(frozen=True, slots=True)
class Winners(Message):
    """Down: the sentences of a site that won, by their index there."""

    index: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]
    """Indices of the site's own sentences."""


@dataclass(frozen=True, slots=True)
class PooledWinners(Message):
    """Down, in simulation only: all winners, by site and index there."""

    site: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]
    """The site that holds the sentence."""
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]
    """The sentence's index at that site."""


def check_claims(claims: Claims | KeyedClaims, sentences: int, triples: int) -> None:
    """Refuse claims that cannot be true of a site with so many sentences and a KB with so many triples."""
    if len(claims.index) and claims.index.max() >= sentences:
        raise RefusedError(f"claims sentence {claims.index.max()}, but holds {sentences} sentences")
    if isinstance(claims, Claims) and len(claims.triple) and claims.triple.max() >= triples:
        raise RefusedError(f"claims triple {claims.triple.max()}, but the KB has {triples} triples")
    if len(np.unique(claims.keys())) < len(claims.index):
        raise RefusedError("claims a triple twice")
    if len(np.unique(claims.index)) < len(claims.index):
        raise RefusedError("claims a sentence twice")


def winners(
    claims: Mapping[int, Claims | KeyedClaims], *, by_rank: bool = False, share_cap: float = 0.0
) -> dict[int, Winners]:
    """Algorithm 1, lines 10 to 13: each triple goes to the highest value, a tie to the lowest site number.

    Sites that won nothing are left out: they are not asked to train. `by_rank` compares a claim's place among its
    own site's claims instead of its value. With `share_cap`, a site wins at most so many times an equal share of
    the triples, those that it claims highest; the others go to the next highest claim.
    """
    if not claims:
        return {}
    key = np.concatenate([claim.keys() for claim in claims.values()])
    value = np.concatenate([ranks(claim.value) if by_rank else claim.value for claim in claims.values()])
    index = np.concatenate([claim.index for claim in claims.values()])
    counts = [len(claim.index) for claim in claims.values()]
    site = np.repeat(list(claims), counts)
    _, triple = np.unique(key, return_inverse=True)
    order = np.lexsort((site, -value, triple))
    won = _first_claims(order, triple)
    if share_cap and len(order):
        most = most_wins(counts, int(triple.max()) + 1, share_cap)
        won = _won_at_most(most, order, won, triple, site, value)
    won = won[np.lexsort((index[won], site[won]))]
    winning, first = np.unique(site[won], return_index=True)
    parts = np.split(index[won], first)[1:]
    return {number: Winners(part) for number, part in zip(winning.tolist(), parts, strict=True)}


def _first_claims(order: Ints, triple: Ints) -> Ints:
    """The first claim of each triple, of claims in an order that keeps a triple's claims together."""
    return order[np.diff(triple[order], prepend=-1) > 0]


def _won_at_most(
    most: int, order: Ints, won: Ints, triple: Ints, site: Ints, value: npt.NDArray[Any]
) -> Ints:
    """The winning claims if no site may win more than `most`: it keeps its highest, the next claims win the others.

    A site that has reached `most` is done, so this ends after as many steps as there are sites.
    """
    while True:
        sites, wins = np.unique(site[won], return_counts=True)
        if wins.max() <= most:
            return won
        greediest = sites[wins.argmax()]
        own = won[site[won] == greediest]
        kept = own[np.lexsort((triple[own], -value[own]))[:most]]
        order = order[(site[order] != greediest) | np.isin(order, kept)]
        won = _first_claims(order, triple)


def pooled(won: Mapping[int, Winners], active: Iterable[int]) -> dict[int, PooledWinners]:
    """The released code's shared list: every active site trains on all winners."""
    if not won:
        return {}
    sites = np.repeat(list(won), [len(winner.index) for winner in won.values()]).astype(np.int32)
    index = np.concatenate([winner.index for winner in won.values()])
    return dict.fromkeys(active, PooledWinners(sites, index))


def first_of_highest(
    values: npt.NDArray[np.floating], bounds: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each run values[bounds[b]:bounds[b + 1]], the position of the first of its highest values."""
    highest = np.repeat(np.maximum.reduceat(values, bounds[:-1]), np.diff(bounds))
    candidates = np.flatnonzero(values == highest)
    return candidates[np.searchsorted(candidates, bounds[:-1])]


def winning_rows(site: Site, *, pooled: bool) -> Ints:
    """The sentences that won: the site's own, or all that the shared list names."""
    if pooled:
        pool = site.received(PooledWinners)
        return site.rows_elsewhere(pool.site, pool.index)
    return site.rows_at(site.outside.won(site.received(Winners).index))


def best_sentences(bags: Bags, probabilities: npt.NDArray[np.float64]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The sentence of each bag that expresses its relation best, and whether the model finds the relation there."""
    labels = np.repeat(bags.labels, np.diff(bags.bounds))
    value = probabilities[np.arange(len(labels)), labels]
    best = first_of_highest(value, bags.bounds)
    return bags.rows[best], value[best] >= probabilities[best].max(axis=1)


def levelled(
    values: npt.NDArray[np.float32], relations: npt.NDArray[np.integer], levels: int
) -> npt.NDArray[np.float32]:
    """Each value's rank among those of the same relation, in so many levels between 0 and 1.

    However the weights were made, values of all relations, `NA` too, are then distributed alike.
    """
    order = np.lexsort((values, relations))
    sizes = np.bincount(relations)
    size = sizes[relations[order]]
    first = np.cumsum(sizes) - sizes
    rank = np.arange(len(order)) - first[relations[order]]
    told = np.empty(len(values), np.float32)
    told[order] = ((2 * rank + 1) * levels // (2 * size) + 0.5) / levels
    return told


def with_decoys(
    digest: npt.NDArray[np.uint8],
    value: npt.NDArray[np.float32],
    order: npt.NDArray[np.int64],
    generator: np.random.Generator,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Claims in this order; where it is -1, one about nothing, with a random digest and a value as others have."""
    decoys = np.flatnonzero(order < 0)
    found, told = digest[order], value[order]
    found[decoys] = generator.integers(0, 256, (len(decoys), digest.shape[1]), np.uint8)
    told[decoys] = generator.choice(value, len(decoys)) if len(decoys) else value[:0]
    return found, told
