"""Lazy MIL: Sui et al. 2021, Distantly Supervised Relation Extraction in Federated Settings (EMNLP Findings).

At the start of a round, the active sites and the coordinator together choose one sentence for every triple: of
all sentences that mention the triple's pair at any of these sites, the one that expresses the relation best
(Algorithm 1). The sites train on the chosen sentences (Algorithm 2). The choice stays until the next round:
hence lazy.

There are two differences from the paper. Each site is told only of its own winners, not of the whole table: the
result is the same, and less is revealed. And `pooled_winners`, the behaviour of the released code, is an option for
simulation, since it moves sentences between sites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.federation.messages import Message, Model
from fedrel.federation.method import at_site
from fedrel.methods.claims import (
    Claims,
    KeyedClaims,
    PooledWinners,
    Winners,
    check_claims,
    first_of_highest,
    levelled,
    pooled,
    winners,
    winning_rows,
    with_decoys,
)
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class LazyMIL(FedAvg):
    """The sites choose one sentence for each triple together, then FedAvg on the chosen sentences."""

    name: ClassVar[str] = "lazy-mil"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Sui, Chen, Liu, Zhao 2021, Distantly Supervised Relation Extraction in Federated Settings"
    )
    carries: ClassVar[tuple[type[Message], ...]] = (Winners, PooledWinners)
    train_head: ClassVar[str] = "none"  # the examples are single sentences
    test_head: ClassVar[str] = "one"
    unprotected: ClassVar[str] = "lazy-mil's claims, which also decide what other sites train on"

    keyed_triples: bool = False
    """Claims carry keyed digests instead of triple numbers, so that the coordinator does not learn which facts
    a text mentions."""
    claims: Literal["probability", "rank", "random"] = "probability"
    """What decides between claims: their probabilities, or each claim's rank among its own site's claims, so that a
    site cannot win by claiming high values. `random`: chance, within a site too, to show what choosing is worth."""
    levels: int = Field(0, ge=0)
    """Claims carry, in place of p(r|s), its rank among the site's claims of the same relation, in so many levels;
    0: p(r|s) itself, as in the paper."""
    pooled_winners: bool = False
    """Every active site trains on all winners, as in the released code. It moves text: simulation only."""

    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Algorithm 1, then Algorithm 2."""
        # Algorithm 1: each active site claims its triples, the highest claim on a triple wins.
        claim = self.claim_keyed if self.keyed_triples else self.claim
        claimed: dict[int, Claims | KeyedClaims] = dict(fed.ask(claim, fed.model))
        won = winners(claimed, by_rank=self.claims == "rank", share_cap=fed.aggregation.share_cap)
        # Algorithm 2: each site trains on the sentences that won, the coordinator averages the updates.
        self.train_and_average(fed, pooled(won, claimed) if self.pooled_winners else won)

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse claims on triples that the KB lacks, on sentences that the site lacks, and repeated claims."""
        super().check(fed, site, answer)
        if isinstance(answer, Claims | KeyedClaims):
            check_claims(answer, fed.sizes[site], fed.triples)

    def simulation_only(self) -> str | None:
        """Pooled winners would have to move sentences from one site to another."""
        return "pooled_winners moves text between sites" if self.pooled_winners else super().simulation_only()

    # The site's half.

    @at_site(takes=(Model,), gives=Claims)
    def claim(self, site: Site) -> Claims:
        """Algorithm 1, lines 4 to 9: for each local bag, the sentence with the highest p(r|s) (Eq. 2)."""
        triple, value, index = self.best(site)
        order, names = site.outside.claim(index, len(site.rows))
        return Claims(triple[order], value[order], names)

    @at_site(takes=(Model,), gives=KeyedClaims)
    def claim_keyed(self, site: Site) -> KeyedClaims:
        """The same claims with digests, sorted by digest: the order of the triples would reveal them."""
        triple, value, index = self.best(site)
        digest = site.digests(triple)
        order = np.lexsort(digest.T[::-1])
        digest, value = digest[order], value[order]
        order, names = site.outside.claim(index[order], len(site.rows), decoys=True)
        return KeyedClaims(*with_decoys(digest, value, order, site.outside.generator("decoys")), names)

    def best(
        self, site: Site
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """For each local bag: its triple, what is told of its best sentence's p(r|s), and that sentence."""
        site.begin(site.received(Model).weights)
        bags = site.bags
        value = self._random(site) if self.claims == "random" else site.label_probabilities(bags)
        best = first_of_highest(value, bags.bounds)
        told = levelled(value[best], bags.labels, self.levels) if self.levels else value[best]
        return bags.keys.astype(np.int32), told, site.index_of(bags.rows[best])

    @staticmethod
    def _random(site: Site) -> npt.NDArray[np.float32]:
        """A number for every sentence: each sentence of a triple is as likely to have the highest."""
        return site.outside.generator("random claims").random(len(site.bags.rows), dtype=np.float32)

    def examples(self, site: Site) -> Bags:
        """D*: the winning sentences (Algorithm 2, line 11)."""
        return site.singles(winning_rows(site, pooled=self.pooled_winners))
