"""FedDyn against its algorithm box, its first step, and what its sites remember."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.runs.prepare import prepare
from tests.conftest import tiny
from tests.methods.carried import WORKERS, same_when_resumed
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small

ALPHA = 0.4
SETTINGS = (f"methods.feddyn.alpha={ALPHA}", "training.batch_size=4", "method=feddyn", "partition.sites=4")


class SlowFedDyn(SlowFedAvg):
    """Algorithm 1 with the terms of Eq. 1 in the loss, and whole models for h and every h_k."""

    def __init__(self, config, ready):
        super().__init__(config, ready)
        zero = {name: torch.zeros_like(tensor) for name, tensor in self.weights.items()}
        self.h, self.own = dict(zero), {site: dict(zero) for site in range(self.sites.sites)}

    def loss(self, site, local, row):
        loss = super().loss(site, local, row)
        for name, w in local.items():
            loss = loss - (self.own[site][name] * w).sum()
            loss = loss + ALPHA / 2 * (w - self.weights[name]).square().sum()
        return loss

    def train(self, site, round_):
        self.before = self.weights
        trained = super().train(site, round_)
        moves = self.moves(site, round_, trained)
        self.own[site] = {name: h_k - ALPHA * moves[name] for name, h_k in self.own[site].items()}
        self.h = {name: h - ALPHA / self.sites.sites * moves[name] for name, h in self.h.items()}
        return trained

    def moves(self, site, round_, trained):
        """w_k - w; of the word table without what weight decay did."""
        training, rest = self.config.training, 1.0
        rate = training.learning_rate_in(round_)
        bags = len({int(self.corpus.triple[row]) for row in self.sites.rows(site)})
        for _ in range(training.epochs * -(-bags // training.batch_size)):
            rest -= rate * (training.weight_decay * rest + ALPHA * (rest - 1))
        factors = dict.fromkeys(trained, 1.0) | {"words.weight": rest}
        return {name: tensor - factors[name] * self.weights[name] for name, tensor in trained.items()}

    def aggregated(self, round_, trained):
        self.weights = {
            name: sum(local[name] for local in trained.values()) / len(trained) - h / ALPHA
            for name, h in self.h.items()
        }


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_four_rounds_equal_a_slow_version(decay, tmp_path):
    config = tiny(extractor__dropout=0.0, training__weight_decay=decay, partition__kind="dirichlet")
    config = config.with_settings(SETTINGS)
    ready = small(prepare(config), 10)
    same(fast(config, ready, 4, tmp_path), SlowFedDyn(config, ready).run(4), atol=1e-4)


@pytest.mark.usefixtures("stepwise")
def test_the_first_step_is_fedavgs_and_the_coordinator_doubles_a_full_rounds(tmp_path):
    """Nothing is remembered and nothing has moved yet: a site's first step knows no correction.

    With all sites taking part, h is then -alpha times the mean move, and the coordinator goes twice as far.
    """
    config = tiny(training__fraction=1.0, training__epochs=1, training__batch_size=1000)
    config = config.with_settings(["training.weight_decay=0"])
    ready = small(prepare(config), 40)
    average = config.with_settings(["method=fedavg", "methods.fedavg.weighting=uniform"])
    start, mean = (fast(average, ready, rounds).checkpoint().weights for rounds in (0, 1))
    session = fast(config.with_settings(["method=feddyn"]), ready, 1, tmp_path)
    same(session, {name: 2 * mean[name] - start[name] for name in mean}, atol=1e-6)
    for name, weight in start.items():
        h = session.checkpoint().state[f"feddyn.{name}"]
        np.testing.assert_allclose(h, -0.01 * (mean[name] - weight), atol=1e-8)


def dense(kept, name, shape):
    """What a site keeps under a weight's name, in full."""
    if name in kept:
        return kept[name]
    whole = np.zeros(shape, np.float32)
    whole[kept[f"{name}/index"]] = kept[f"{name}/values"]
    return whole


def test_h_is_the_mean_of_what_the_sites_remember_and_they_remember_their_own_words(tmp_path):
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
        assert set(kept[site]["feddyn.words.weight/index"]) == set(lookup[text].tolist())
    for name, weight in checkpoint.weights.items():
        mean = sum(dense(own, f"feddyn.{name}", weight.shape) for own in kept.values()) / sites.sites
        np.testing.assert_allclose(checkpoint.state[f"feddyn.{name}"], mean, atol=1e-6, err_msg=name)


def test_workers_and_a_resumed_run_give_the_same_weights(tmp_path):
    same_when_resumed(tiny(method="feddyn", training__fraction=0.7).with_settings(WORKERS), tmp_path)


def test_alpha_0_is_refused():
    with pytest.raises(UserError, match=r"methods\.feddyn\.alpha"):
        method("feddyn", {"feddyn": {"alpha": 0}})


def test_a_method_that_sends_no_weights_is_refused_as_company(tmp_path):
    config = tiny(method="feddyn+feded", partition__coordinator=0.2)
    with pytest.raises(UserError, match="feded does not use `after_training`, which feddyn changes"):
        fast(config, prepare(config), 1, tmp_path)
