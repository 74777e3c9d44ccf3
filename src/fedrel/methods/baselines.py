"""The baselines that train in one place: all text at one site, or the coordinator's labelled sentences alone.

Federated methods are compared with the first, and FedED's paper compares itself with the second as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.federation.messages import Model, Update
from fedrel.federation.method import at_coordinator
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import dense

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class Centralised(FedAvg):
    """One site holds all text; `centralised+one` and the like choose another bag head."""

    name: ClassVar[str] = "centralised"
    paper: ClassVar[str] = "the baseline of all papers: no federation"
    pools_data: ClassVar[bool] = True
    several_sites: ClassVar[bool] = False

    share: float = Field(1.0, gt=0, le=1)
    """The share of the bags that a round trains on, drawn anew each round. With the sites' fraction C, a round
    costs as much as theirs."""

    def examples(self, site: Site) -> Bags:
        """All bags, or a random share of them."""
        bags = super().examples(site)
        return bags if self.share == 1 else site.sample(bags, max(round(self.share * len(bags)), 1))


class ValidationOnly(FedAvg):
    """The coordinator trains alone, E epochs a round on its own labelled sentences, D_v."""

    name: ClassVar[str] = "validation-only"
    paper: ClassVar[str] = (
        "Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction"
    )
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    several_sites: ClassVar[bool] = False
    beyond_examples: ClassVar[str] = "validation-only trains on the coordinator's own sentences"

    def round(self, fed: Federation) -> None:
        """What a site does in FedAvg, at the coordinator."""
        needs_validation(self.name, fed)
        update = fed.work(self.train_here, fed.model)
        fed.learned(update)
        fed.weights = self.server_update(fed, dense(fed.weights, update.weights))

    @at_coordinator(takes=(Model,), gives=Update)
    def train_here(self, coordinator: Site) -> Update:
        """Train on D_v."""
        return coordinator.update(self.fit(coordinator))


def needs_validation(name: str, fed: Federation) -> None:
    """Fail if the coordinator has no labelled sentences, which the method of this name needs."""
    if not fed.validation:
        raise UserError(
            f"{name} needs labelled sentences at the coordinator",
            hint="set partition.coordinator, the share of the training data that it holds, to 0.2 for example",
        )
