"""FedCMC against its paper's algorithm box, and where it is FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrel.errors import UserError
from fedrel.federation.coordinator import class_vectors
from fedrel.federation.messages import RefusedError
from fedrel.federation.site import Site
from fedrel.methods.by_name import method
from fedrel.methods.fedcmc import CHOSEN, Choice, ClassVectors
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.records import Traffic
from fedrel.runs.train import Session, run
from fedrel.seeding import numpy_generator
from fedrel.tensors.weights import Rows
from tests.conftest import NO_STATES, tiny
from tests.federation.test_engines import same as same_runs
from tests.federation.test_lying_sites import LIAR, LyingEngine, nan_weights
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small, with_sites

SKEWED = ("extractor.bias=false", "partition.kind=dirichlet", "partition.alpha=0.3", "partition.sites=4")


class SlowFedCMC(SlowFedAvg):
    """Algorithm 1 with Eq. 10, 12, 14, 15 and 18 as loops."""

    def __init__(self, config, ready, vectors, mu):
        super().__init__(config, ready)
        self.which, self.mu = vectors, mu
        self.major = self.weights["classifier.weight"].clone()
        self.distances = {}

    def loss(self, site, local, row):
        h = self.vector(local, row)
        contrast = -torch.log(torch.exp(self.major[self.label(row)] @ h) / torch.exp(self.major @ h).sum())
        return super().loss(site, local, row) + self.mu * contrast

    def aggregated(self, round_, trained):
        classes = len(self.major)
        self.distances = {site: distances(local["classifier.weight"]) for site, local in trained.items()}
        major = []
        for c in range(classes):
            if self.which == "random":
                drawn = {
                    site: numpy_generator(self.config.seed, "class vectors", site, round_).random(classes)[c]
                    for site in trained
                }
                chosen = min(drawn, key=drawn.get)
            else:
                best = min if self.which == "major" else max
                chosen = best(trained, key=lambda site: self.distances[site][c])
            major.append(trained[chosen]["classifier.weight"][c])
        self.major = torch.stack(major)


def distances(vectors):
    """Eq. 10."""
    found = []
    for c, one in enumerate(vectors):
        cosines = [
            float(one @ other / one.norm() / other.norm()) for i, other in enumerate(vectors) if i != c
        ]
        found.append(sum(cosines) / len(cosines))
    return found


@pytest.mark.parametrize("vectors", ["major", "minor", "random"])
def test_three_rounds_equal_a_slow_version_of_algorithm_1(vectors):
    config = tiny(extractor__dropout=0.0, training__fraction=0.75, training__batch_size=4, training__epochs=1)
    config = config.with_settings([*SKEWED, "method=fedcmc", f"methods.fedcmc.vectors={vectors}"])
    config = config.with_settings(["methods.fedcmc.mu=0.6"])
    ready = small(prepare(config), 12)
    slow = SlowFedCMC(config, ready, vectors, 0.6)
    weights = slow.run(3)
    session = fast(config, ready, 2)
    line = session.next_round()
    same(session, weights, atol=2e-5)
    np.testing.assert_allclose(session.checkpoint().state[CHOSEN], slow.major, atol=2e-5)
    assert line.class_distances.keys() == set(line.active)
    for site, found in slow.distances.items():
        np.testing.assert_allclose(line.class_distances[site], found, atol=1e-4)


def test_the_choice_by_hand():
    one, two, three = (np.full((3, 2), value, np.float32) for value in (1, 2, 3))
    choice = Choice(one, np.array([0.5, 0.1, 0.3]))
    choice.offer(two, np.array([0.4, 0.2, 0.3]))
    choice.offer(three, np.array([0.4, 0.0, 0.9]))  # a tie in the first class: the earlier site has it
    assert choice.vectors[:, 0].tolist() == [2, 3, 1]
    assert one.min() == 1  # what was offered stays as it was


def test_the_first_round_is_led_by_the_global_classifier_and_the_vectors_cross_once():
    config = tiny(method="fedcmc").with_settings(SKEWED)
    ready = prepare(config)
    session = fast(config, ready, 0)
    classifier = session.checkpoint().weights["classifier.weight"]
    (message,) = session._method.before_training(session._fed)
    np.testing.assert_array_equal(message.vectors, classifier)
    for _ in range(2):
        line = session.next_round()
        assert line.bytes.by_kind["ClassVectors"] == Traffic(up=0, down=2 * classifier.nbytes)


def site_with(vectors, config, ready) -> Site:
    """A site that has begun a round with these class vectors, and the weights it began with."""
    weights = fast(config, ready, 0).checkpoint().weights
    site = Site(
        new_runner(config, ready.site_data, NO_STATES).model, 1, 1, {ClassVectors: ClassVectors(vectors)}
    )
    site.begin(weights)
    return site


def test_the_contrast_trains_the_encoder_only():
    config = tiny(extractor__dropout=0.0, method="fedcmc").with_settings(SKEWED)
    ready = prepare(config)
    vectors = np.random.default_rng(0).normal(size=(5, 36)).astype(np.float32)
    gradients = {}
    for mu in (0.0, 1.0, 2.0):
        fedcmc = method("fedcmc", {"fedcmc": {"mu": mu}})
        site = site_with(vectors, config, ready)
        batch = next(site.batches(site.bags))
        fedcmc.loss(site, batch, site.read("none", batch)).backward()
        gradients[mu] = {name: p.grad for name, p in site.extractor.named_parameters() if p.grad is not None}
    for name, none in gradients[0.0].items():
        one, two = gradients[1.0][name] - none, gradients[2.0][name] - none
        assert one.any() == (name != "classifier.weight")
        torch.testing.assert_close(two, 2 * one, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("classes", [4, 6])
def test_vectors_of_another_shape_are_refused(classes):
    config = tiny(method="fedcmc").with_settings(SKEWED)
    site = site_with(np.zeros((classes, 36), np.float32), config, prepare(config))
    batch = next(site.batches(site.bags))
    with pytest.raises(RefusedError, match=rf"class vectors are \({classes}, 36\), expected \(5, 36\)"):
        method("fedcmc", {}).loss(site, batch, site.read("none", batch))


@pytest.mark.usefixtures("stepwise")
@pytest.mark.parametrize("vectors", ["major", "minor", "random"])
def test_mu_0_is_fedavg_to_the_bit(vectors):
    config = tiny().with_settings(SKEWED)
    ready = small(prepare(config), 40)
    settings = ["method=fedcmc", "methods.fedcmc.mu=0", f"methods.fedcmc.vectors={vectors}"]
    average = fast(config.with_settings(["method=fedavg"]), ready, 3).checkpoint().weights
    same(fast(config.with_settings(settings), ready, 3), average)


def test_a_classifier_with_a_bias_is_refused():
    config = tiny(method="fedcmc")
    with pytest.raises(UserError, match=r"only without a bias") as refusal:
        fast(config, prepare(config), 1)
    assert "extractor.bias = false" in str(refusal.value)


def test_predictions_instead_of_weights_leave_nothing_to_choose_from():
    config = tiny(method="feded+fedcmc", partition__coordinator=0.2).with_settings(SKEWED)
    with pytest.raises(UserError, match="feded does not use `after_training`, which fedcmc changes"):
        fast(config, prepare(config), 1)


@pytest.mark.parametrize("vectors", ["major", "minor"])
@pytest.mark.parametrize(
    "name", ["fedcmc", "fedlc+fedcmc"]
)  # with FedLC, vectors of absent classes stay zero
def test_sites_of_one_class_a_class_that_nobody_has_and_class_vectors_of_zeros(name, vectors):
    config = tiny(method=name, training__fraction=1.0).with_settings(SKEWED)
    config = config.with_settings([f"methods.fedcmc.vectors={vectors}"])
    ready = prepare(config)
    labels, rows = ready.dataset.corpus.relation[ready.dataset.train], ready.dataset.train
    ready = with_sites(ready, [rows[labels == 0], rows[labels == 1], rows[(labels == 2) | (labels == 3)]])
    session = fast(config, ready, 0)
    session._fed.weights = session._fed.weights | {"classifier.weight": np.zeros((5, 36), np.float32)}
    for _ in range(2):
        line = session.next_round()
    assert np.isfinite(list(line.class_distances.values())).all()
    at = session.checkpoint()
    assert all(np.isfinite(array).all() for array in (*at.weights.values(), *at.state.values()))


def test_class_distances_are_noted_for_every_method_but_not_with_a_bias():
    for settings, noted in (([], False), (["extractor.bias=false"], True)):
        config = tiny(method="lazy-mil").with_settings(settings)
        session = fast(config, prepare(config), 0)
        line = session.next_round()
        assert (line.class_distances is not None) == noted
        line.model_dump_json()


def test_class_vectors_are_read_from_rows_too():
    base = {"classifier.weight": np.ones((3, 2), np.float32)}
    sent = Rows(np.array([1], np.int32), np.array([[5, 6]], np.float32), 0.5)
    found = class_vectors(base, {"classifier.weight": sent})
    assert found.tolist() == [[0.5, 0.5], [5, 6], [0.5, 0.5]]
    assert class_vectors(base, {"filters": sent}) is None


def test_a_classifier_of_nan_is_refused_and_never_chosen():
    config = tiny(method="fedcmc", training__fraction=1.0).with_settings(SKEWED)
    ready = prepare(config)
    engine = LyingEngine(new_runner(config, ready.site_data, NO_STATES), "train", nan_weights, {LIAR})
    session = Session(config, ready, engine, None)
    line = session.next_round()
    (refusal,) = line.refused
    assert (refusal.site, refusal.reason) == (
        LIAR,
        "classifier.weight holds a value that is not finite",
    )
    assert line.class_distances.keys() == {0, 2, 3}
    assert np.isfinite(session.checkpoint().state[CHOSEN]).all()


def test_two_workers_and_a_resumed_run_give_the_same_weights(tmp_path):
    config = tiny(method="fedcmc", training__rounds=4).with_settings(
        [*SKEWED, "methods.fedcmc.vectors=random"]
    )
    run(config, tmp_path / "whole")
    run(config.with_settings(["engine.kind=workers", "engine.workers=2"]), tmp_path / "workers")
    same_runs(tmp_path / "whole", tmp_path / "workers")
    run(config.with_settings(["training.rounds=2"]), tmp_path / "parts")
    run(config, tmp_path / "parts", resume=True)
    same_runs(tmp_path / "whole", tmp_path / "parts")


def test_wrong_options_are_refused():
    for option, value in (("mu", -1), ("vectors", "best")):
        with pytest.raises(UserError, match=rf"methods\.fedcmc\.{option}"):
            method("fedcmc", {"fedcmc": {option: value}})
