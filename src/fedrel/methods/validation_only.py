"""Validation-only, a baseline of FedED's paper: the coordinator trains on its own labelled sentences, D_v."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedrel.errors import UserError
from fedrel.federation.messages import Model, Update
from fedrel.federation.method import at_coordinator
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import dense

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class ValidationOnly(FedAvg):
    """The coordinator trains alone, E epochs a round on its own labelled sentences."""

    name: ClassVar[str] = "validation-only"
    paper: ClassVar[str] = (
        "Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction"
    )
    several_sites: ClassVar[bool] = False

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
