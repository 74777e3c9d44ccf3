"""Lazy MIL: Sui et al. 2021, Distantly Supervised Relation Extraction in Federated Settings (EMNLP Findings).

At the start of a round, active sites and coordinator together choose for every triple the one sentence, of all
that mention its pair at any of these sites, that expresses the relation best (Algorithm 1). The sites train
on what they won (Algorithm 2), and that choice rests until the next round: hence lazy.

Two deviations from the paper, both by METHODS: each site is told of its own winners only, not of the whole
table (same result, less leaked); and `pooled_winners`, the released code's behaviour, is an option for
simulation, since it moves sentences between sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags
from fedrel.federation.messages import Array, Message, Model, RefusedError
from fedrel.federation.method import at_site
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


@dataclass(frozen=True, slots=True)
class Claims(Message):
    """Up: for each triple that a site's text mentions, its best sentence's probability and index."""

    triple: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]
    value: Annotated[npt.NDArray[np.float32], Array("float32", ("claims",), low=0, high=1)]
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]

    def keys(self) -> npt.NDArray[Any]:
        """What tells one triple from another."""
        return self.triple


@dataclass(frozen=True, slots=True)
class KeyedClaims(Message):
    """Up: the same with HMAC-SHA256 digests for triples, under a key that the coordinator does not have."""

    digest: Annotated[npt.NDArray[np.uint8], Array("uint8", ("claims", 32))]
    value: Annotated[npt.NDArray[np.float32], Array("float32", ("claims",), low=0, high=1)]
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("claims",), low=0)]

    def keys(self) -> npt.NDArray[Any]:
        """The digests as 32-byte strings."""
        return np.ascontiguousarray(self.digest).view("V32").reshape(-1)


@dataclass(frozen=True, slots=True)
class Winners(Message):
    """Down: the sentences of a site that won, by their index there."""

    index: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]


@dataclass(frozen=True, slots=True)
class PooledWinners(Message):
    """Down, in simulation only: all winners, by site and index there."""

    site: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]
    index: Annotated[npt.NDArray[np.int32], Array("int32", ("won",), low=0)]


class LazyMIL(FedAvg):
    """Cross-site choice of one sentence a triple, then FedAvg on the chosen ones."""

    name: ClassVar[str] = "lazy-mil"
    carries: ClassVar[tuple[type[Message], ...]] = (Winners, PooledWinners)
    test_head: ClassVar[str] = "one"

    keyed_triples: bool = False
    """Send triples as keyed digests, so that the coordinator does not learn which facts a text mentions."""
    pooled_winners: bool = False
    """Every active site trains on all winners (the released code). Moves text: simulation only."""

    # The coordinator's half.

    def prepare(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Algorithm 1: collect the claims, choose the winners."""
        claim = self.claim_keyed if self.keyed_triples else self.claim
        claims: dict[int, Claims | KeyedClaims] = dict(fed.ask(claim, fed.model))
        won = winners(claims)
        return [*super().prepare(fed), pooled(won, claims) if self.pooled_winners else won]

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """A claim must be on a triple of the knowledge base, once, and on a sentence that the site holds."""
        super().check(fed, site, answer)
        if not isinstance(answer, Claims | KeyedClaims):
            return
        if len(answer.index) and answer.index.max() >= fed.sizes[site]:
            raise RefusedError(f"claims sentence {answer.index.max()}, but holds {fed.sizes[site]} sentences")
        if isinstance(answer, Claims) and len(answer.triple) and answer.triple.max() >= fed.triples:
            raise RefusedError(f"claims triple {answer.triple.max()}, but the KB has {fed.triples} triples")
        if len(np.unique(answer.keys())) < len(answer.index):
            raise RefusedError("claims a triple twice")
        if len(np.unique(answer.index)) < len(answer.index):
            raise RefusedError("claims a sentence twice")

    def simulation_only(self) -> str | None:
        """Pooled winners would have to move sentences from one site to another."""
        return "pooled_winners moves text between sites" if self.pooled_winners else super().simulation_only()

    # The site's half.

    @at_site(takes=(Model,), gives=Claims)
    def claim(self, site: Site) -> Claims:
        """Algorithm 1, lines 4 to 9: for each local bag, the sentence with the highest p(r|s) (Eq. 2)."""
        site.begin(site.received(Model).weights)
        bags = site.bags
        value = site.label_probabilities(bags)
        best = first_of_highest(value, bags.bounds)
        return Claims(
            triple=bags.keys.astype(np.int32),
            value=value[best],
            index=site.index_of(bags.rows[best]),
        )

    @at_site(takes=(Model,), gives=KeyedClaims)
    def claim_keyed(self, site: Site) -> KeyedClaims:
        """The same claims with the triples' digests, in their order: that of the triples would tell of them."""
        claims = self.claim(site)
        digest = site.digests(claims.triple)
        order = np.lexsort(digest.T[::-1])
        return KeyedClaims(digest[order], claims.value[order], claims.index[order])

    def examples(self, site: Site) -> Bags:
        """D*: the winning sentences (Algorithm 2, line 11)."""
        if self.pooled_winners:
            pool = site.received(PooledWinners)
            return site.singles(site.rows_elsewhere(pool.site, pool.index))
        return site.singles(site.rows_at(site.received(Winners).index))


def winners(claims: Mapping[int, Claims | KeyedClaims]) -> dict[int, Winners]:
    """Algorithm 1, lines 10 to 13: each triple to the highest value, ties to the lowest site number.

    Sites that won nothing are left out: they are not asked to train.
    """
    if not claims:
        return {}
    key = np.concatenate([claim.keys() for claim in claims.values()])
    value = np.concatenate([claim.value for claim in claims.values()])
    index = np.concatenate([claim.index for claim in claims.values()])
    site = np.repeat(list(claims), [len(claim.index) for claim in claims.values()])
    _, triple = np.unique(key, return_inverse=True)
    order = np.lexsort((site, -value, triple))
    won = order[np.diff(triple[order], prepend=-1) > 0]  # the first of each triple's claims
    won = won[np.lexsort((index[won], site[won]))]
    winning, first = np.unique(site[won], return_index=True)
    parts = np.split(index[won], first)[1:]
    return {number: Winners(part) for number, part in zip(winning.tolist(), parts, strict=True)}


def pooled(won: Mapping[int, Winners], active: Iterable[int]) -> dict[int, PooledWinners]:
    """The released code's shared list: every active site trains on all that was won."""
    if not won:
        return {}
    sites = np.repeat(list(won), [len(winner.index) for winner in won.values()]).astype(np.int32)
    index = np.concatenate([winner.index for winner in won.values()])
    return dict.fromkeys(active, PooledWinners(sites, index))


def first_of_highest(values: npt.NDArray[np.float32], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each run values[bounds[b]:bounds[b + 1]], where its highest value stands first."""
    highest = np.repeat(np.maximum.reduceat(values, bounds[:-1]), np.diff(bounds))
    candidates = np.flatnonzero(values == highest)
    return candidates[np.searchsorted(candidates, bounds[:-1])]
