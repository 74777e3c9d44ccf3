"""Local training: every site trains alone. The baseline of a partner who asks whether to take part.

A site that is drawn trains its own model on, E epochs a round: as many steps on its own text as in FedAvg. Nothing
is sent or averaged. Each site keeps the round that is best on its own dev part, and its model is tested on its own
test part (`fedrel.runs.own_models`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedrel.federation.messages import Model
from fedrel.federation.rounds import Traffic
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import dense

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


class Local(FedAvg):
    """Every site trains a model of its own; `local+one` and the like choose another bag head."""

    name: ClassVar[str] = "local"
    paper: ClassVar[str] = "the baseline of a site that does not take part: no federation"
    own_models: ClassVar[bool] = True
    several_sites: ClassVar[bool] = False

    def round(self, fed: Federation) -> None:
        """Each active site goes on with its own model."""
        models = {site: fed.model_of(site) for site in fed.notes.active}
        for site, update in fed.ask(self.train, {site: Model(own) for site, own in models.items()}):
            fed.keep_model(site, dense(models[site], update.weights))
            fed.learned(update)
        # A simulation moves the models, sites that train alone would not.
        fed.notes.traffic, fed.notes.sent = Traffic(), {}

    @classmethod
    def unsuited(cls) -> str | None:
        """Without a global model there is nothing to correct by."""
        if cls.correction is not FedAvg.correction:
            return "a site that trains alone has no global model to stay near"
        return super().unsuited()

    def simulation_only(self) -> str | None:
        """Sites that train alone need no coordinator."""
        return super().simulation_only() or "its sites have nothing to do with each other"
