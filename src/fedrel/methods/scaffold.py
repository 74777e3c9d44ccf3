"""SCAFFOLD: Karimireddy et al. 2020, Stochastic Controlled Averaging for Federated Learning, with option II.

Sites drift apart because their gradients differ. Each site keeps c_k, its mean gradient of the last round in
which it trained. The coordinator keeps c, the mean of all c_k. A site's steps go down g + c - c_k (Algorithm
1).

By option II, c_k changes by (w_global - w_k) / (steps * lr) - c, which the coordinator can compute from what it
has. So a site uploads its weights and one number, `path` = steps * lr, half of what the paper's algorithm box
sends; and it cannot send a control variate that does not belong to its weights.

The paper has no weight decay. With it, the earlier a step of a round is, the less it counts, and `path` takes
that into account. In a word table, where decay acts on all rows, it does not count as a gradient: c_k is then
zero but for the words of the site's own text, and so small on the site's disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedrel.extractors.objective import Correction
from fedrel.federation.messages import Message, Model, Update
from fedrel.federation.method import OwnStep, at_site
from fedrel.methods.controls import STORED, Control, ControlledUpdate, SummedControls, change, variate
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import WeightedMean, Weights, advanced, plus

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


CHANGES, DRIFTS = "scaffold.changes", "scaffold.drifts"  # what the coordinator sums up in a round


class Scaffold(SummedControls):
    """FedAvg with control variates against the drift of sites."""

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = (
        "Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
    )
    carries: ClassVar[tuple[type[Message], ...]] = (Control,)

    weighting: Literal["examples", "uniform"] = "uniform"
    """How much an update counts in the average: all the same, as in the paper, or by its number of examples."""
    global_rate: float = Field(1.0, gt=0)
    """How far the global weights go towards the sites' mean: the paper's global step size."""

    # The coordinator's half.

    def before_training(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Send c too."""
        return [*super().before_training(fed), Control(variate(fed))]

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse an update whose control variate would be too large."""
        super().check(fed, site, answer)
        if isinstance(answer, ControlledUpdate):
            answer.check_path(fed.weights)

    def on_update(self, fed: Federation, site: int, update: Update) -> None:
        """Sum up the changes of c_k, and what c alone did to the rows that the updates leave out."""
        super().on_update(fed, site, update)
        assert isinstance(update, ControlledUpdate)
        c = variate(fed)
        if CHANGES not in fed.memo:
            fed.memo |= {CHANGES: WeightedMean(c), DRIFTS: WeightedMean(c)}
        fed.memo[CHANGES].add(update.change(fed.weights, c), float(update.sites))
        fed.memo[DRIFTS].add(update.drift(), self.update_weight(update))

    def after_training(self, fed: Federation) -> None:
        """c += 1/K sum_k (c_k's change). K counts all sites that hold text."""
        super().after_training(fed)
        changes: WeightedMean = fed.memo[CHANGES]
        share = changes.total / np.count_nonzero(fed.sizes)
        c, moves = variate(fed), changes.result()
        fed.state |= {f"{STORED}.{name}": advanced(c[name], share, moves[name]) for name in c}

    def server_update(self, fed: Federation, mean: Weights) -> Weights:
        """w += global_rate * mean_k (w_k - w)."""
        drifts = fed.memo[DRIFTS].result()
        moved = {name: advanced(tensor, 1.0, drifts[name]) for name, tensor in mean.items()}
        mean = super().server_update(fed, moved)
        if self.global_rate == 1:
            return mean
        rate = np.float32(self.global_rate)
        return {name: (1 - rate) * tensor + rate * mean[name] for name, tensor in fed.weights.items()}

    @classmethod
    def only_mean(cls) -> str | None:
        """The rule would protect the weights and not c."""
        return (
            "it corrects the mean of the updates, and its control variate is a mean of what they tell as well"
        )

    def reach(self, own: OwnStep) -> float:
        """The global step size multiplies the mean's move."""
        return super().reach(own) + self.global_rate * own.length

    # The site's half.

    def correction(self, site: Site) -> Correction:
        """c - c_k, added to every gradient."""
        site.memo[STORED] = site.recall_model(STORED)
        own = plus({}, site.memo[STORED], -1.0)
        return super().correction(site) + Correction(own=own, common=site.received(Control).variate)

    @at_site(takes=(Model, Control), gives=ControlledUpdate)
    def train(self, site: Site) -> ControlledUpdate:
        """Train, and store the new c_k."""
        update = super().train(site)
        start, c = site.received(Model).weights, site.received(Control).variate
        site.remember_model(STORED, plus(site.memo[STORED], change(start, update.weights, site.path, c)))
        return ControlledUpdate(update.weights, update.examples, update.loss, site.path)

    @classmethod
    def unsuited(cls) -> str | None:
        """Rows that an update leaves out are known for a mean only, and one place alone does not drift."""
        if cls.aggregator is not FedAvg.aggregator:
            return "scaffold corrects the mean of the updates, and another part replaces that mean"
        if not cls.several_sites:
            return "scaffold corrects the drift between sites, and one place alone has none"
        return super().unsuited()
