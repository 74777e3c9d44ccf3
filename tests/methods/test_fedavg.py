"""FedAvg: a round by hand with made-up sites, and what a site does step by step or by kernels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedrel.config.schema import PrivacySection
from fedrel.extractors.objective import Correction
from fedrel.federation.messages import Model, RefusedError, Update
from fedrel.methods.by_name import method
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, WeightedMean


class MadeUp:
    """A federation whose sites send given updates, and that notes what was asked and used."""

    def __init__(self, updates: dict[int, Update], sizes=(9, 9, 9)) -> None:
        self.weights = {"w": np.array([1.0, 2.0], np.float32)}
        self.sizes = np.array(sizes)
        self.updates, self.asked, self.used = updates, [], []
        self.privacy = PrivacySection()

    @property
    def model(self) -> Model:
        return Model(self.weights)

    def ask(self, phase, *sent):
        self.asked.append((phase.__name__, [type(one).__name__ for one in sent]))
        yield from self.updates.items()

    def new_sum(self) -> WeightedMean:
        return WeightedMean(self.weights)

    def trusted(self, updates):
        return updates

    def checked_mean(self, mean):
        assert np.isfinite(mean["w"]).all()
        return mean

    def go_on_with(self, weights, counts) -> None:
        self.weights, self.counts = weights, counts

    def learned(self, update) -> None:
        self.used.append(update.examples)


def update(value: float, examples: int) -> Update:
    return Update({"w": np.full(2, value, np.float32)}, examples, 0.5)


def test_a_round_by_hand():
    fed = MadeUp({0: update(1, 1), 2: update(5, 3)})
    FedAvg().round(fed)
    assert fed.weights["w"].tolist() == [4, 4]  # (1 * 1 + 3 * 5) / 4
    assert fed.asked == [("train", ["Model"])]
    assert fed.used == [1, 3]
    assert fed.counts == {0: 1, 2: 3}
    fed = MadeUp({0: update(1, 1), 2: update(5, 3)})
    FedAvg(weighting="uniform").round(fed)
    assert fed.weights["w"].tolist() == [3, 3]
    assert [FedAvg(weighting=kind).update_weight(update(0, 7)) for kind in ("examples", "uniform")] == [7, 1]


def test_what_else_is_given_is_sent_too_and_the_functions_are_called_in_order():
    calls = []

    class Noted(FedAvg):
        def before_training(self, fed):
            calls.append("before")
            return [*super().before_training(fed), Model({})]

        def on_update(self, fed, site, update):
            super().on_update(fed, site, update)
            calls.append(f"update of {site}, {len(fed.used)} used")

        def after_training(self, fed):
            super().after_training(fed)
            calls.append("after")

        def server_update(self, fed, mean):
            calls.append("server")
            return {name: 2 * array for name, array in super().server_update(fed, mean).items()}

    fed = MadeUp({0: update(1, 1), 2: update(5, 3)})
    Noted().train_and_average(fed, {0: update(0, 1)})
    assert fed.asked == [("train", ["Model", "Model", "dict"])]
    assert calls == ["before", "update of 0, 0 used", "update of 2, 1 used", "after", "server"]
    assert fed.weights["w"].tolist() == [8, 8]


def test_without_an_answer_there_is_no_new_model():
    fed = MadeUp({})
    with pytest.raises(NoAnswerError):
        FedAvg().round(fed)
    assert fed.weights["w"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "examples", "held"), [("fedavg", 10, 9), ("fedavg", 19, 9), ("centralised", 28, 27)]
)
def test_more_examples_than_a_site_holds_are_refused(name, examples, held):
    fed, chosen = MadeUp({}), method(name, {})
    for possible in (held, held - 1, 1):
        chosen.check(fed, 1, update(0, possible))
    with pytest.raises(RefusedError, match=f"says it trained on {examples} examples, but holds {held}"):
        chosen.check(fed, 1, update(0, examples))
    chosen.check(fed, 1, Model({}))  # not an update


class OneSite:
    """A site that notes what a method does with it."""

    def __init__(self, *, kernels: bool = False) -> None:
        self.examples = SimpleNamespace(rows=np.arange(5))
        self.kernels, self.done = kernels, []
        self.extractor = SimpleNamespace(
            criterion=lambda logits, labels: f"criterion of {logits} and {labels}"
        )

    def received(self, kind):
        assert kind is Model
        return SimpleNamespace(weights="global")

    def begin(self, weights) -> None:
        self.done.append(f"begin {weights}")

    def units(self, examples, head):
        assert examples is self.examples
        return examples

    def correct(self, correction) -> None:
        assert correction == Correction()
        self.done.append("correct")

    def fit(self, bags, objective) -> bool:
        assert bags is self.examples
        self.done.append(f"fit {objective.head}")
        return self.kernels

    def batches(self, bags):
        assert bags is self.examples
        return ["a", "b"]

    def read(self, head, batch):
        return SimpleNamespace(logits=f"{head} {batch}", labels=batch)

    def step(self, loss) -> None:
        self.done.append(f"step on the {loss}")

    def update(self, examples) -> str:
        return f"update of {examples}"


def test_a_site_trains_by_kernels_where_there_are_some():
    site = OneSite(kernels=True)
    assert FedAvg().train(site) == "update of 5"
    assert site.done == ["begin global", "correct", "fit none"]


def test_and_step_by_step_where_there_are_none():
    site = OneSite()
    assert method("one", {}).train(site) == "update of 5"
    steps = ["step on the criterion of one a and a", "step on the criterion of one b and b"]
    assert site.done == ["begin global", "correct", "fit one", *steps]


def test_a_method_with_a_loss_of_its_own_is_not_trained_by_kernels():
    def own(self, *given):
        return super(kind, self).loss(*given)

    kind = type("Own", (FedAvg,), {"loss": own})
    assert kind().kernel_head() is None
    site = OneSite(kernels=True)
    kind().train(site)
    assert site.done[2:] == ["step on the criterion of none a and a", "step on the criterion of none b and b"]


@pytest.mark.parametrize("changed", ["calibration", "fixed_classifier", "correction"])
def test_a_method_whose_objective_is_described_is_trained_by_kernels(changed):
    def own(self, *given):
        return getattr(super(kind, self), changed)(*given)

    kind = type("Own", (FedAvg,), {changed: own})
    site = OneSite(kernels=True)
    kind().train(site)
    assert site.done[2:] == ["fit none"]


def test_a_method_that_only_averages_in_its_own_way_is_trained_by_kernels():
    assert [method(name, {}).kernel_head() for name in ("fedavg", "att", "fedadam")] == [
        "none",
        "att",
        "none",
    ]
