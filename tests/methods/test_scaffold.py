"""SCAFFOLD against its algorithm box, where it is FedAvg, what is remembered, and sites that lie."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.methods.scaffold import DRIFTS
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.round_outcome import LostRoundError
from fedrel.runs.train import Session
from tests.conftest import tiny
from tests.federation.test_lying_sites import LyingEngine
from tests.methods.carried import WORKERS, same_when_resumed
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small
from tests.methods.test_feddyn import dense
from tests.methods.test_fedprox import MU, SlowFedProx

SETTINGS = ("method=scaffold", "training.batch_size=4", "partition.sites=4")


class SlowScaffold(SlowFedAvg):
    """Algorithm 1, option II, with whole models for c and every c_k, all of them in plain sight."""

    mu = 0.0

    def __init__(self, config, ready):
        super().__init__(config, ready)
        zero = {name: torch.zeros_like(tensor) for name, tensor in self.weights.items()}
        self.c, self.own = zero, dict.fromkeys(range(self.sites.sites), zero)

    def loss(self, site, local, row):
        """A gradient of c - c_k more is a term <c - c_k, w> more."""
        loss = super().loss(site, local, row)
        return loss + sum(((self.c[name] - self.own[site][name]) * w).sum() for name, w in local.items())

    def train(self, site, round_):
        self.before, training = self.weights, self.config.training
        y = super().train(site, round_)
        rate = training.learning_rate_in(round_)
        bags = len({int(self.corpus.triple[row]) for row in self.sites.rows(site)})
        steps = training.epochs * -(-bags // training.batch_size)
        # Without decay and FedProx these are 1 and K * eta. Decay is a gradient of all weights but the table's.
        rest, path = 1.0, 0.0
        for _ in range(steps):
            rest -= rate * (training.weight_decay * rest + self.mu * (rest - 1))
            path += rate - rate * (training.weight_decay + self.mu) * path
        factors = dict.fromkeys(y, 1.0) | {"words.weight": rest}
        self.own[site] = {
            name: c_k - self.c[name] + (factors[name] * self.weights[name] - y[name]) / path
            for name, c_k in self.own[site].items()
        }
        return y

    def aggregated(self, round_, trained):
        rate = self.config.methods.get("scaffold", {}).get("global_rate", 1.0)
        self.weights = {
            name: x + rate * sum(y[name] - x for y in trained.values()) / len(trained)
            for name, x in self.before.items()
        }
        # c moves by 1/K of what the c_k moved by, so it is their mean.
        self.c = {name: sum(own[name] for own in self.own.values()) / len(self.own) for name in self.c}


@pytest.mark.parametrize(("decay", "global_rate"), [(0.0, 1.0), (0.0, 0.6), (1e-2, 1.0)])
def test_four_rounds_equal_a_slow_version(decay, global_rate, tmp_path):
    config = tiny(extractor__dropout=0.0, training__weight_decay=decay, partition__kind="dirichlet")
    config = config.with_settings([*SETTINGS, f"methods.scaffold.global_rate={global_rate}"])
    ready = small(prepare(config), 10)
    same(fast(config, ready, 4, tmp_path), SlowScaffold(config, ready).run(4), atol=5e-5)


@pytest.mark.parametrize(("rate", "expected"), [(0.5, [2.25, 5.0]), (1.0, [3.5, 6.0]), (2.0, [6.0, 8.0])])
def test_the_weights_go_the_global_rate_of_the_way_to_the_mean_and_its_drift(rate, expected):
    drifts = SimpleNamespace(result=lambda: {"w": np.array([0.5, 0], np.float32)})
    fed = SimpleNamespace(weights={"w": np.array([1, 4], np.float32)}, memo={DRIFTS: drifts})
    scaffold = method("scaffold", {"scaffold": {"global_rate": rate}})
    assert scaffold.server_update(fed, {"w": np.array([3, 6], np.float32)})["w"].tolist() == expected


class SlowBoth(SlowScaffold, SlowFedProx):
    mu = MU


def test_corrections_of_two_methods_add_up(tmp_path):
    config = tiny(extractor__dropout=0.0, training__weight_decay=1e-2, partition__kind="dirichlet")
    config = config.with_settings([*SETTINGS, "method=fedprox+scaffold", f"methods.fedprox.mu={MU}"])
    ready = small(prepare(config), 10)
    same(fast(config, ready, 4, tmp_path), SlowBoth(config, ready).run(4), atol=5e-5)


@pytest.mark.usefixtures("stepwise")
def test_the_first_round_is_fedavgs_to_the_bit(tmp_path):
    config = tiny(partition__kind="dirichlet")
    ready = small(prepare(config), 40)
    average = config.with_settings(["method=fedavg", "methods.fedavg.weighting=uniform"])
    controlled = config.with_settings(["method=scaffold"])
    same(fast(controlled, ready, 1, tmp_path), fast(average, ready, 1).checkpoint().weights)
    with pytest.raises(AssertionError):
        same(fast(controlled, ready, 2, tmp_path), fast(average, ready, 2).checkpoint().weights, atol=1e-3)


@pytest.mark.usefixtures("stepwise")
def test_one_site_alone_has_nothing_to_correct(tmp_path):
    config = tiny(partition__sites=1, training__fraction=1.0)
    ready = small(prepare(config), 40)
    average = fast(config.with_settings(["method=fedavg"]), ready, 3).checkpoint().weights
    same(fast(config.with_settings(["method=scaffold"]), ready, 3, tmp_path), average, atol=1e-5)


def test_c_is_the_mean_of_what_the_sites_remember_and_they_remember_their_own_words(tmp_path):
    """The coordinator works c out from weights alone; the sites never send what they remember."""
    config = tiny(training__weight_decay=1e-3, training__fraction=0.7).with_settings(SETTINGS)
    ready = small(prepare(config), 40)
    checkpoint = fast(config, ready, 4, tmp_path).checkpoint()
    sites, corpus, lookup = ready.site_data.partition, ready.dataset.corpus, ready.site_data.inputs.lookup
    kept = {}
    for folder in tmp_path.iterdir():
        site = int(folder.name)
        kept[site] = load_file(sorted(folder.iterdir())[-1])
        rows = sites.rows(site)
        text = np.concatenate([corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]] for row in rows])
        assert set(kept[site]["scaffold.words.weight/index"]) == set(lookup[text].tolist())
    for name, weight in checkpoint.weights.items():
        mean = sum(dense(own, f"scaffold.{name}", weight.shape) for own in kept.values()) / sites.sites
        np.testing.assert_allclose(checkpoint.state[f"scaffold.{name}"], mean, atol=1e-6, err_msg=name)


def test_an_upload_is_eight_bytes_longer_than_fedavgs(tmp_path):
    """One number more for each site, in every round, though c moves all rows of the word table."""
    config = tiny()
    ready = prepare(config)
    controlled = fast(config.with_settings(["method=scaffold"]), ready, 0, tmp_path)
    average = fast(config.with_settings(["method=fedavg"]), ready, 0)
    for _ in range(3):
        kinds, plain = (session.next_round().bytes.by_kind for session in (controlled, average))
        assert kinds["ControlledUpdate"].up == plain["Update"].up + 3 * 8
        assert kinds["Control"].down == kinds["Model"].down == plain["Model"].down


@pytest.mark.usefixtures("stepwise")
def test_lazy_mil_chooses_what_controlled_sites_train_on(tmp_path):
    config = tiny().with_settings(["methods.scaffold.weighting=examples"])
    ready = small(prepare(config), 40)
    lazy = fast(config.with_settings(["method=lazy-mil"]), ready, 1).checkpoint().weights
    for name in ("lazy-mil+scaffold", "scaffold+lazy-mil"):
        composed = config.with_settings([f"method={name}"])
        same(fast(composed, ready, 1, tmp_path / name), lazy)
        with pytest.raises(AssertionError):
            same(fast(composed, ready, 2, tmp_path / name), lazy, atol=1e-3)


def test_workers_and_a_resumed_run_give_the_same_weights(tmp_path):
    config = tiny(method="scaffold+fedprox", training__fraction=0.7)
    same_when_resumed(config.with_settings(WORKERS), tmp_path)


def no_path(arrays):
    arrays["path"] = np.array(0.0)


def short_path(arrays):
    arrays["path"] = np.array(1e-9)


def nan_path(arrays):
    arrays["path"] = np.array(np.nan)


def huge_row(arrays):
    arrays["weights/words.weight/values"][0, 0] = 3e38


def with_a_control_of_its_own(arrays):
    arrays["control/filters"] = arrays["weights/filters"]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (no_path, "path holds 0.0, below"),
        (short_path, "head_positions moved too far on a path of 1e-09"),
        (nan_path, "path holds a value that is not finite"),
        (huge_row, "words.weight/values holds 3"),
        (with_a_control_of_its_own, "control/filters is not a field of ControlledUpdate"),
    ],
)
def test_a_lying_site_does_not_reach_c(lie, reason, tmp_path):
    config = tiny(method="scaffold", training__fraction=1.0, training__learning_rate=1.0)
    ready = prepare(config)
    engine = LyingEngine(new_runner(config, ready.site_data, tmp_path), "train", lie, {1})
    session = Session(config, ready, engine, None)
    (refusal,) = session.next_round().refused
    assert (refusal.site, refusal.message) == (1, "ControlledUpdate")
    assert refusal.reason.startswith(reason)
    honest = fast(config, ready, 1, tmp_path / "honest").checkpoint()
    for name, c in session.checkpoint().state.items():
        assert np.abs(c).max() <= 6 * np.abs(honest.state[name]).max()


def test_another_optimiser_than_sgd_is_refused(tmp_path):
    config = tiny(method="scaffold", training__optimiser="adamw")
    with pytest.raises(LostRoundError, match=r'defined for training\.optimiser = "sgd" only'):
        fast(config, prepare(config), 1, tmp_path)


@pytest.mark.parametrize("rate", [1e20, 1e30, 1e38])
def test_at_a_senseless_rate_every_site_says_that_training_diverged(rate, tmp_path):
    """The control variates are added times the rate to the power of steps, which float32 cannot hold."""
    config = tiny(method="scaffold", training__learning_rate=rate)
    with pytest.raises(LostRoundError) as lost:
        fast(config, prepare(config), 2, tmp_path)
    assert lost.value.diverged
    problem = lost.value.error(rate).problem
    assert problem.count("training diverged: the loss is nan") == 1  # one reason, and the sites that gave it
    assert re.search(r"\(site-\d+, site-\d+.*: refused the request: training diverged", problem)


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match=r"methods\.scaffold\.global_rate"):
        method("scaffold", {"scaffold": {"global_rate": 0}})


def test_a_method_that_sends_no_weights_is_refused_as_company(tmp_path):
    config = tiny(method="scaffold+feded", partition__coordinator=0.2)
    with pytest.raises(UserError, match="both define `summand`"):
        fast(config, prepare(config), 1, tmp_path)
