"""FedDyn: Acar et al. 2021, Federated Learning Based on Dynamic Regularization.

A site's loss has two terms more (Eq. 1): L_k(w) - <h_k, w> + alpha/2 ||w - w_global||^2. The site updates h_k
after each round it takes part in, so that where the sites agree, h_k is the gradient of its own loss: the
optimum of all is then one of each. The coordinator does the same with h, the mean of all h_k (Algorithm 1).

A site keeps h_k on its disk. Of a word table it keeps the rows of the site's own words; for that, weight decay,
which acts on all rows, does not count as a move of the table's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedrel.errors import UserError
from fedrel.extractors.correction import Correction
from fedrel.federation.messages import Model, Update
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import WeightedMean, Weights, moved, plus

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


KEPT = "feddyn"  # in a site's memory: h_k; in the coordinator's state: h


class FedDyn(FedAvg):
    """FedAvg with dynamic regularisation of every site's loss."""

    name: ClassVar[str] = "feddyn"

    alpha: float = Field(0.01, gt=0)
    """How strongly sites are regularised. The paper chooses among 0.1, 0.01 and 0.001."""

    # The coordinator's half.

    def weight(self, update: Update) -> float:
        """All the same, as in the paper, unless `weighting` is given."""
        return super().weight(update) if "weighting" in self.model_fields_set else 1.0

    def learn(self, fed: Federation, site: int, update: Update) -> None:
        """Gather how far the sites moved."""
        super().learn(fed, site, update)
        if KEPT not in fed.memo:
            fed.memo[KEPT] = WeightedMean(fed.weights)
        fed.memo[KEPT].add(moved(fed.weights, update.weights), 1.0)

    def conclude(self, fed: Federation, mean: Weights) -> Weights:
        """h -= alpha / K * sum_k (w_k - w); w = mean - h / alpha. K counts all sites that hold text."""
        mean = super().conclude(fed, mean)
        if KEPT not in fed.memo:
            raise UserError(f"{self.name}: no site sends its weights, so there are no moves to regularise")
        moves: WeightedMean = fed.memo[KEPT]
        share = moves.total / np.count_nonzero(fed.sizes)
        concluded = {}
        for name, move in moves.result().items():
            key = f"{KEPT}.{name}"
            fed.state[key] = fed.state.get(key, np.float32(0)) - np.float32(self.alpha * share) * move
            concluded[name] = mean[name] - fed.state[key] / np.float32(self.alpha)
        return concluded

    # The site's half.

    def correction(self, site: Site) -> Correction:
        """The gradient of the two terms: -h_k + alpha (w - w_global)."""
        site.memo[KEPT] = site.recall_model(KEPT)
        own = plus({}, site.memo[KEPT], -1.0)
        return super().correction(site) + Correction(pull=self.alpha, own=own)

    def fit(self, site: Site) -> int:
        """Local training, and h_k -= alpha (w_k - w_global)."""
        examples = super().fit(site)
        moves = moved(site.received(Model).weights, site.extractor.update())
        site.remember_model(KEPT, plus(site.memo[KEPT], moves, -self.alpha))
        return examples
