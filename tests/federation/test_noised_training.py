"""DP-SGD at the sites: what leaves them, what is refused, how many steps they take, and how these are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest

from fedrel.errors import UserError
from fedrel.federation.messages import Array, Model, RefusedError, Update
from fedrel.federation.method import at_site
from fedrel.federation.noised_training import SeededRandomness, SystemRandomness, poisson_batches
from fedrel.federation.site import Site
from fedrel.methods.by_name import method
from fedrel.methods.fedavg import FedAvg
from fedrel.privacy.differential_privacy import local_steps
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.seeding import numpy_generator
from tests.conftest import NO_STATES, local_session, tiny
from tests.documents import tiny_documents
from tests.extractors.conftest import write_encoder

NOISE = {"level": "sentence", "noise": 0.8, "clip": 0.5}

SOURCES = [SeededRandomness(numpy_generator(1, "test")), SystemRandomness()]


def noised(**changes: object):
    section = {f"privacy__dp__{key}": value for key, value in NOISE.items()}
    return tiny(**{"extractor__train_words": False, "method": "fedavg", **section, **changes})


@pytest.fixture(scope="module")
def ready():
    return prepare(noised())


def site_of(config, ready, number=1, rules=None, states=NO_STATES) -> Site:
    model = new_runner(config, ready.site_data, states).model
    model.rules = rules
    return Site(model, number, 1, {Model: Model(model.extractor.state())})


def trained(config, ready, rules=None, states=NO_STATES) -> Update:
    chosen = method(config.method, config.methods)
    return chosen.train(site_of(config, ready, 1, rules, states))


# What leaves a site.


@pytest.mark.parametrize(
    "name",
    ["fedavg", "one", *(pytest.param(name, marks=pytest.mark.slow) for name in ("att", "moon", "fedprox"))],
)
def test_an_update_tells_noised_weights_a_public_count_and_no_loss(ready, name, tmp_path):
    config = noised(method=name)
    update = trained(config, ready, states=tmp_path)
    assert update.loss == 0 and update.examples == ready.site_data.partition.sizes[1]
    plain = trained(config.with_settings({"privacy": {}}), ready, states=tmp_path / "plain")
    assert plain.loss > 0
    for tensor, other in zip(update.weights.values(), plain.weights.values(), strict=True):
        assert (tensor != other).mean() > 0.9


def test_trained_words_are_told_with_all_their_rows(ready):
    """The rows of an update would tell which words a site has."""
    update = trained(noised(extractor__train_words=True), ready)
    table = update.weights["words.weight"]
    assert len(table.index) >= ready.site_data.inputs.vocabulary_size - 1


def test_a_real_site_draws_from_the_operating_system(ready):
    """The coordinator knows the seed: with noise that follows from it, there would be none."""
    config = noised()
    first, again = (trained(config, ready).weights for _ in range(2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    real = [trained(config, ready, rules=SimpleNamespace()).weights for _ in range(2)]
    assert all((real[0][name] != real[1][name]).mean() > 0.9 for name in first)


def test_counts_of_relations_are_refused(ready):
    with pytest.raises(RefusedError, match="counts of relations"):
        _ = site_of(noised(), ready).label_counts
    for name in ("fedrs", "fedlc"):
        with pytest.raises(RefusedError, match="counts of relations"):
            trained(noised(method=name), ready)


def test_answers_that_no_noise_covers_are_refused_at_the_site(ready):
    """Whatever the coordinator's config says."""
    config = noised(method="lazy-mil")
    runner = new_runner(config, ready.site_data, NO_STATES)
    runner.keep(1, {Model: Model(runner.model.extractor.state())})
    with pytest.raises(RefusedError, match="noise does not cover"):
        runner.answer("claim", 1, 1, {})


@dataclass(frozen=True, slots=True)
class Told(Update):
    """Up: an update and one more number."""

    longest: Annotated[int, Array("int64", low=0)]


class Telling(FedAvg):
    """Sends an update with one more number."""

    @at_site(takes=(Model,), gives=Told)
    def train(self, site):
        update = super().train(site)
        return Told(update.weights, update.examples, update.loss, 7)


def test_a_message_that_adds_to_an_update_must_say_that_noise_covers_it(ready):
    runner = new_runner(noised(), ready.site_data, NO_STATES)
    runner.method = Telling()
    runner.keep(1, {Model: Model(runner.model.extractor.state())})
    with pytest.raises(RefusedError, match="noise does not cover"):
        runner.answer("train", 1, 1, {})


# Steps.


@pytest.mark.parametrize(("batch_size", "head"), [(16, "fedavg"), (1000, "fedavg"), (7, "one"), (60, "att")])
def test_steps_and_rates_follow_from_public_counts(ready, batch_size, head, monkeypatch):
    """The accountant computes the same numbers from how many examples a site holds."""
    taken = []
    config = noised(method=head, training__batch_size=batch_size)
    site = site_of(config, ready)
    monkeypatch.setattr(
        "fedrel.federation.noised_training.poisson_batches",
        lambda count, rate, steps, _: taken.append((count, rate, steps)) or [np.arange(2)] * steps,
    )
    method(head, {}).fit(site)
    held = len(site.rows)
    steps = local_steps(config.privacy.dp, config.training, held)
    ((count, rate, number),) = taken
    assert (rate, number) == (steps.rate, steps.count)
    assert rate == min(1.0, batch_size / held) and number == 2 * max(1, round(held / batch_size))
    assert count == (held if head == "fedavg" else len(site.bags))


class Twice(FedAvg):
    """Takes two steps for every example."""

    def kernel_head(self):
        return None

    def fit(self, site):
        site.begin(site.received(Model).weights)
        for batch in site.batches(site.units(site.examples, "none")):
            for _ in range(2):
                site.step(self.loss(site, batch, site.read("none", batch)))
        return 1


class Again(FedAvg):
    """Trains twice."""

    def fit(self, site):
        super().fit(site)
        return super().fit(site)


@pytest.mark.parametrize(("kind", "reason"), [(Twice, "more than one step"), (Again, "trains twice")])
def test_training_that_the_accountant_does_not_count_is_refused(ready, kind, reason):
    with pytest.raises(RefusedError, match=reason):
        kind().train(site_of(noised(), ready))


def test_one_example_changes_the_sum_by_no_more_than_the_bound_through_the_graph(ready, monkeypatch):
    """A step with and without a bag, by attention over bags: a backward pass for each bag."""
    config = noised(method="att", training__epochs=1, training__weight_decay=0)
    monkeypatch.setattr(SeededRandomness, "normal", lambda _, count: np.zeros(count, np.float32))
    found = []
    for which in (np.arange(5), np.arange(4)):
        monkeypatch.setattr(
            "fedrel.federation.noised_training.poisson_batches", lambda *_, which=which: [which]
        )
        found.append(trained(config, ready).weights)
    moved = np.sqrt(sum(np.square(found[0][name] - found[1][name].astype(float)).sum() for name in found[0]))
    site = site_of(config, ready)
    expected = 16 / len(site.rows) * len(site.bags)
    assert 0.5 < moved / (0.3 * NOISE["clip"] / expected) < 1 + 1e-3


# Whole runs.


def test_methods_that_noise_does_not_cover_are_refused_by_name(ready):
    for name, reason in (
        ("lazy-mil", "claims"),
        ("fedlc", "counts"),
        ("fedrs+fedprox", "counts"),
        ("validation-only", "coordinator"),
    ):
        with pytest.raises(UserError, match=reason):
            local_session(noised(method=name), ready)


class Own(FedAvg):
    """A plug-in."""


def test_a_plug_in_must_say_that_noise_on_examples_is_enough(ready, monkeypatch):
    from fedrel.methods import by_name

    monkeypatch.setattr(by_name, "parts", lambda name: [Own])
    with pytest.raises(UserError, match="does not say"):
        by_name.check_privacy(Own(), noised())
    monkeypatch.setattr(Own, "beyond_examples", "", raising=False)
    by_name.check_privacy(Own(), noised())


@pytest.mark.parametrize(
    "name", ["fedavg", "scaffold", "feddyn", "fedcmc", "fedavgm", "fedatt", "centralised"]
)
def test_methods_train_with_noise(name, tmp_path):
    config = noised(method=name, extractor__bias=False, privacy__dp__noise=0.3)
    session = local_session(config, prepare(config), tmp_path)
    first = session.next_round()
    assert first.loss is None and first.privacy.epsilon > 0


def test_predictions_and_secure_sums_are_noised_in_training_too(tmp_path):
    for number, changes in enumerate(
        ({"method": "feded", "partition__coordinator": 0.2}, {"privacy__secure_sum": True})
    ):
        config = noised(**changes)
        first = local_session(config, prepare(config), tmp_path / str(number)).next_round()
        assert first.privacy.epsilon > 0 and not first.refused


@pytest.mark.slow
def test_more_noise_costs_less_and_learns_less():
    found = {}
    for noise in (0.2, 30.0):
        config = noised(
            privacy__dp__noise=noise, training__rounds=6, training__learning_rate=1.0, training__epochs=4
        )
        session = local_session(config, prepare(config))
        rounds = [session.next_round() for _ in range(6)]
        found[noise] = rounds[-1].privacy.epsilon, rounds[-1].dev["auc"]
    assert found[0.2][0] > found[30.0][0] and found[0.2][1] > found[30.0][1]


@pytest.mark.slow
def test_documents_are_examples_too(tmp_path):
    encoder = str(write_encoder(tmp_path / "encoder"))
    config = tiny_documents(
        tmp_path / "data",
        encoder,
        "method=fedlcc",
        "training.precision=float32",
        "privacy.dp.level=sentence",
        "privacy.dp.noise=0.5",
        "privacy.dp.clip=0.5",
    )
    session = local_session(config, prepare(config), tmp_path / "states")
    for _ in range(2):
        session.next_round()
    assert all(np.isfinite(tensor).all() for tensor in session.checkpoint().weights.values())


@pytest.mark.parametrize("source", SOURCES, ids=["seeded", "system"])
def test_each_example_is_in_a_step_by_itself(source):
    """Sizes have the binomial's mean and variance, some steps are empty, and two examples meet by chance."""
    examples, rate, steps = 8, 0.2, 20_000
    batches = list(poisson_batches(examples, rate, steps, source))
    inside = np.zeros((steps, examples))
    for step, batch in enumerate(batches):
        assert (np.diff(batch) > 0).all()
        inside[step, batch] = 1
    sizes = inside.sum(1)
    assert sizes.mean() == pytest.approx(examples * rate, abs=0.05)
    assert sizes.var() == pytest.approx(examples * rate * (1 - rate), rel=0.06)
    assert (sizes == 0).mean() == pytest.approx((1 - rate) ** examples, abs=0.02)
    np.testing.assert_allclose(inside.mean(0), rate, atol=0.02)
    together = inside.T @ inside / steps
    np.testing.assert_allclose(together[~np.eye(examples, dtype=bool)], rate**2, atol=0.01)
    again = (inside[1:] * inside[:-1]).mean()  # of one step and the next
    assert again == pytest.approx(rate**2, abs=0.01)


def test_a_rate_of_1_takes_everything():
    assert [batch.tolist() for batch in poisson_batches(3, 1.0, 2, SystemRandomness())] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("count", [0, 1, 7])
def test_as_many_normal_numbers_as_are_asked_for(count):
    for source in SOURCES:
        numbers = source.normal(count)
        assert numbers.shape == (count,) and numbers.dtype == np.float32


def test_the_systems_normal_numbers_have_the_right_tails_and_never_come_again():
    numbers = SystemRandomness().normal(400_000).astype(float)
    assert np.abs(numbers).mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.005)
    assert numbers.var() == pytest.approx(1, abs=0.015) and abs(numbers.mean()) < 0.01
    assert (np.abs(numbers) > 3).mean() == pytest.approx(0.0027, abs=0.0005)
    halves = numbers[:200_000], numbers[200_000:]  # they come in pairs, of one radius and one angle each
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.012 and abs(np.corrcoef(*np.square(halves))[0, 1]) < 0.012
    assert not np.array_equal(SystemRandomness().normal(10), SystemRandomness().normal(10))
