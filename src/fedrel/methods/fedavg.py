"""FedAvg: McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.

Sites train the global weights on their own data, the coordinator averages what comes back. Every method that
trains locally and averages is this one with a joint replaced: `prepare` (what the coordinator does and sends
before training), `examples` (what a site trains on), `loss`, `weight` (how much an update counts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from fedrel.data.bags import Bags
from fedrel.federation.messages import Message, Model, RefusedError, Update
from fedrel.federation.weights import WeightedMean
from fedrel.methods.base import Method, at_site

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batch import Batch
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class FedAvg(Method):
    """Local training on every sentence, averaged by the number of examples."""

    name: ClassVar[str] = "fedavg"
    train_head: ClassVar[str] = "none"
    """The bag head that training goes through."""

    weighting: Literal["examples", "uniform"] = "examples"
    """How much an update counts: the number of its examples, or all the same."""

    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Send the weights, average the updates."""
        mean = WeightedMean(fed.weights)
        for _, update in fed.ask(self.train, fed.model, *self.prepare(fed)):
            mean.add(update.weights, self.weight(update))
            fed.learned(update)
        fed.weights = mean.result()

    def prepare(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """What travels with the weights: a message for all, or one for each site that is to train."""
        return []

    def weight(self, update: Update) -> float:
        """How much an update counts in the average."""
        return update.examples if self.weighting == "examples" else 1.0

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """An update cannot be made from more examples than the site holds."""
        super().check(fed, site, answer)
        held = fed.sizes.sum() if self.simulation_only() else fed.sizes[site]
        if isinstance(answer, Update) and answer.examples > held:
            raise RefusedError(f"says it trained on {answer.examples} examples, but holds {held}")

    # The site's half.

    @at_site(takes=(Model,), gives=Update)
    def train(self, site: Site) -> Update:
        """E epochs of SGD from the global weights on the site's own examples."""
        site.begin(site.received(Model).weights)
        examples = self.examples(site)
        for batch in site.batches(examples):
            site.step(self.loss(site, batch))
        return site.update(len(examples.rows))

    def examples(self, site: Site) -> Bags:
        """What the site trains on: all its bags."""
        return site.bags

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """The loss of a batch of bags under this method's bag head."""
        loss, weights = site.head(self.train_head).loss(site.extractor, batch, site.dropout)
        site.journal.trained(batch, weights)
        return loss
