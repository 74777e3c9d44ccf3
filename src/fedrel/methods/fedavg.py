"""FedAvg: McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.

Sites train the global weights on their own data, the coordinator averages the results (Algorithm 1). A method that
trains at the sites and averages inherits from this class and overrides the functions in which it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedrel.data.bags import Bags
from fedrel.federation.messages import Message, Model, RefusedError, Update
from fedrel.federation.method import adds_up, at_site
from fedrel.federation.summands import Summand, SummedUpdate, moved_by, moves
from fedrel.methods.summed_answers import SummedAnswers
from fedrel.tensors.weights import Floats, Sum, Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class FedAvg(SummedAnswers):
    """Local training on every sentence; the average is weighted by the number of examples."""

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = (
        "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data"
    )
    weighting: Literal["examples", "uniform"] = "examples"
    """How much an update counts in the average: by its number of examples, or all the same."""

    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Algorithm 1, the server: the active sites train, the coordinator averages."""
        self.train_and_average(fed)

    def train_and_average(self, fed: Federation, *sent: Message | Mapping[int, Message]) -> None:
        """Send the weights, and what else is given, to the active sites, and average their updates."""
        total, counts = self.aggregator(fed), dict[int, float]()
        updates = self.collect(fed, self.train, fed.model, *self.before_training(fed), *sent)
        for site, update in fed.trusted(updates):
            total.add(update.weights, counts.setdefault(site, self.update_weight(update)))
            self.on_update(fed, site, update)
            fed.learned(update)
        mean = fed.checked_mean(total.result())
        self.after_training(fed)
        fed.go_on_with(self.server_update(fed, mean), counts)

    @adds_up
    def before_training(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Messages that are sent with the weights: one for all sites, or one for each; none by default."""
        return []

    def aggregator(self, fed: Federation) -> Sum:
        """The sum that turns the updates into one model: a weighted mean, or another rule of `[aggregation]`."""
        return fed.new_sum()

    def update_weight(self, update: Update) -> float:
        """How much an update counts in the sum."""
        return update.examples if self.weighting == "examples" else 1.0

    @adds_up
    def on_update(self, fed: Federation, site: int, update: Update) -> None:
        """Use an update for something beside the sum; nothing by default."""

    @adds_up
    def after_training(self, fed: Federation) -> None:
        """Finish what `on_update` began, once all updates are in; nothing by default."""

    def server_update(self, fed: Federation, mean: Weights) -> Weights:
        """The next global weights: the sum's result."""
        return mean

    def largest_weight(self, fed: Federation) -> int:
        """The largest `update_weight` that a site can have."""
        return ceil(self.update_weight(Update({}, int(fed.sizes.max()), 0.0)))

    def summed(self, fed: Federation, mean: Summand, sites: float) -> Any:
        """The mean of several sites' moves as if it were one site's update."""
        return SummedUpdate(moved_by(fed.weights, mean.numbers), mean.examples, mean.loss, sites)

    def to_sum(self, fed: Federation, answer: Any) -> Floats:
        """How far training moved the site's weights."""
        return moves(fed.weights, answer)

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse an update from more examples than the site holds."""
        super().check(fed, site, answer)
        held = fed.sizes.sum() if self.simulation_only() else fed.sizes[site]
        if isinstance(answer, Update) and answer.examples > held:
            raise RefusedError(f"says it trained on {answer.examples} examples, but holds {held}")

    @classmethod
    def no_updates(cls) -> str | None:
        """Nothing: updates are averaged."""
        return None

    @classmethod
    def only_mean(cls) -> str | None:
        """Nothing: any rule may combine the updates, unless another part has an `aggregator` of its own."""
        return None if cls.aggregator is FedAvg.aggregator else "it has a way of its own to combine updates"

    # The site's half.

    @at_site(takes=(Model,), gives=Update)
    def train(self, site: Site) -> Update:
        """Algorithm 1, ClientUpdate: train, and send back the weights."""
        return site.update(self.fit(site))

    @adds_up
    def fit(self, site: Site) -> int:
        """Train E epochs from the global weights on the site's examples; returns the number of examples."""
        site.begin(site.received(Model).weights)
        objective = self.objective(site)
        examples = site.units(self.examples(site), objective.head)
        site.correct(objective.correction)
        if not (self.kernel_head() and site.fit(examples, objective)):
            for batch in site.batches(examples):
                site.step(self.loss(site, batch, site.read(objective.head, batch)))
        return len(examples.rows)

    def summand(self, site: Site) -> Summand:
        """What the site adds to a sum of all sites: how far training moved its weights."""
        update = self.train(site)
        numbers = moves(site.received(Model).weights, update)
        return Summand(numbers, self.update_weight(update), update.examples, update.loss)

    def examples(self, site: Site) -> Bags:
        """What the site trains on: all that it has."""
        return site.examples
