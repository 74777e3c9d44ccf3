"""FedAvg: McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.

Sites train the global weights on their own data, the coordinator averages what comes back. Every method that
trains locally and averages is this one with a joint replaced. At the coordinator: `prepare` (what it does and
sends before training), `sum` and `weight` (how updates become one model), `learn` (what else it takes from
them), `conclude` (what it makes of the result). At a site: `examples`, `loss`, `logits`, `correction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from fedrel.data.bags import Bags
from fedrel.extractors.correction import Correction
from fedrel.federation.messages import Message, Model, RefusedError, Update
from fedrel.federation.method import Method, at_site
from fedrel.tensors.weights import Sum, WeightedMean, Weights

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
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
        total = self.sum(fed)
        for site, update in fed.ask(self.train, fed.model, *self.prepare(fed)):
            total.add(update.weights, self.weight(update))
            self.learn(fed, site, update)
            fed.learned(update)
        fed.weights = self.conclude(fed, total.result())

    def prepare(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """What travels with the weights: a message for all, or one for each site that is to train."""
        return []

    def sum(self, fed: Federation) -> Sum:
        """What gathers the updates to one model."""
        return WeightedMean(fed.weights)

    def weight(self, update: Update) -> float:
        """How much an update counts in the average."""
        return update.examples if self.weighting == "examples" else 1.0

    def learn(self, fed: Federation, site: int, update: Update) -> None:
        """What else the coordinator takes from an update; nothing by default."""

    def conclude(self, fed: Federation, mean: Weights) -> Weights:
        """The next global weights, given what the updates came to."""
        return mean

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """An update cannot be made from more examples than the site holds."""
        super().check(fed, site, answer)
        held = fed.sizes.sum() if self.simulation_only() else fed.sizes[site]
        if isinstance(answer, Update) and answer.examples > held:
            raise RefusedError(f"says it trained on {answer.examples} examples, but holds {held}")

    # The site's half.

    @at_site(takes=(Model,), gives=Update)
    def train(self, site: Site) -> Update:
        """Local training, and the weights it led to."""
        return site.update(self.fit(site))

    def fit(self, site: Site) -> int:
        """E epochs from the global weights on the site's own examples; returns how many these are."""
        site.begin(site.received(Model).weights)
        site.correct(self.correction(site))
        examples = self.examples(site)
        if not (self.is_plain() and site.fit(examples, self.train_head)):
            for batch in site.batches(examples):
                site.step(self.loss(site, batch, site.read(self.train_head, batch)))
        return len(examples.rows)

    @classmethod
    def is_plain(cls) -> bool:
        """Whether training is a bag head's cross-entropy and nothing else, so that kernels may do it at once."""
        return (cls.loss, cls.logits, cls.correction) == (FedAvg.loss, FedAvg.logits, FedAvg.correction)

    def kernel_head(self) -> str | None:
        """Kernels may train this method's head where training is nothing but its cross-entropy."""
        return self.train_head if self.is_plain() else None

    def examples(self, site: Site) -> Bags:
        """What the site trains on: all its bags."""
        return site.bags

    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """The cross-entropy of a batch as this method's bag head reads it."""
        return site.extractor.criterion(self.logits(site, reading), reading.labels)

    def logits(self, site: Site, reading: Reading) -> Tensor:
        """What the cross-entropy is of: the classifier's logits."""
        return reading.logits

    def correction(self, site: Site) -> Correction:
        """What is added to every gradient beside the loss's, for terms that hold all weights; nothing by default.

        The optimiser applies it exactly and at no cost for a vocabulary's unused words, which a term of the loss
        could not. The loss that a site reports is without it.
        """
        return Correction()
