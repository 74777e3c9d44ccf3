"""FedDyn: Acar et al. 2021, Federated Learning Based on Dynamic Regularization.

A site's loss has two more terms (Eq. 1): L_k(w) - <h_k, w> + alpha/2 ||w - w_global||^2. The site updates h_k
after each round that it takes part in. So where the sites agree, h_k is the gradient of the site's own loss,
and the optimum of all sites is an optimum of each. The coordinator does the same with h, the mean of all h_k
(Algorithm 1).

A site stores h_k on its disk, of the word table only the rows of the site's own words. For that, weight decay,
which acts on all rows, does not count as a move of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedrel.extractors.objective import Correction
from fedrel.federation.messages import Model, Update
from fedrel.federation.method import OwnStep
from fedrel.federation.summands import Summand, check_uniform
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import WeightedMean, Weights, advanced, moved, plus

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


STORED = "feddyn"  # at a site: h_k; in the coordinator's state: h


class FedDyn(FedAvg):
    """FedAvg with a dynamic regularisation of every site's loss."""

    name: ClassVar[str] = "feddyn"
    paper: ClassVar[str] = "Acar et al. 2021, Federated Learning Based on Dynamic Regularization"

    weighting: Literal["examples", "uniform"] = "uniform"
    """How much an update counts in the average: all the same, as in the paper, or by its number of examples."""
    alpha: float = Field(0.01, gt=0)
    """How strongly sites are regularised. The paper chooses among 0.1, 0.01 and 0.001."""

    # The coordinator's half.

    def summed(self, fed: Federation, mean: Summand, sites: float) -> Any:
        """The mean of the sites' updates, all the same: h needs their plain mean."""
        check_uniform(fed, self.weighting, self.name)
        return super().summed(fed, mean, sites)

    def on_update(self, fed: Federation, site: int, update: Update) -> None:
        """Sum up how far the sites moved."""
        super().on_update(fed, site, update)
        if STORED not in fed.memo:
            fed.memo[STORED] = WeightedMean(fed.weights)
        fed.memo[STORED].add(moved(fed.weights, update.weights), float(update.sites))

    def after_training(self, fed: Federation) -> None:
        """h -= alpha / K * sum_k (w_k - w). K counts all sites that hold text."""
        super().after_training(fed)
        moves: WeightedMean = fed.memo[STORED]
        share = moves.total / np.count_nonzero(fed.sizes)
        for name, move in moves.result().items():
            h = fed.state.get(f"{STORED}.{name}", np.float32(0))
            fed.state[f"{STORED}.{name}"] = advanced(h, -self.alpha * share, move)

    def server_update(self, fed: Federation, mean: Weights) -> Weights:
        """w = mean - h / alpha."""
        mean, alpha = super().server_update(fed, mean), np.float32(self.alpha)
        return {
            name: advanced(tensor, -1.0, fed.state[f"{STORED}.{name}"] / alpha)
            for name, tensor in mean.items()
        }

    @classmethod
    def only_mean(cls) -> str | None:
        """The rule would protect the mean and not h."""
        return "it corrects the mean of the updates by h, which is a mean of what they tell as well"

    def reach(self, own: OwnStep) -> float:
        """h / alpha is the sum of what the sites moved in all rounds so far."""
        return super().reach(own) + own.rounds * own.length

    # The site's half.

    def correction(self, site: Site) -> Correction:
        """The gradient of the two terms: -h_k + alpha (w - w_global)."""
        site.memo[STORED] = site.recall_model(STORED)
        own = plus({}, site.memo[STORED], -1.0)
        return super().correction(site) + Correction(pull=self.alpha, own=own)

    def fit(self, site: Site) -> int:
        """Train, and h_k -= alpha (w_k - w_global)."""
        examples = super().fit(site)
        moves = moved(site.received(Model).weights, site.extractor.update())
        site.remember_model(STORED, plus(site.memo[STORED], moves, -self.alpha))
        return examples
