"""FedProx against its equation, where it is FedAvg, and in company."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.runs.prepare import prepare
from fedrel.runs.round_outcome import LostRoundError
from tests.conftest import tiny
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small

MU = 0.7


class SlowFedProx(SlowFedAvg):
    def loss(self, site, local, row):
        """Eq. 2 as it stands: the term is in the loss, and autograd does the rest."""
        apart = sum((local[name] - tensor).square().sum() for name, tensor in self.weights.items())
        return super().loss(site, local, row) + MU / 2 * apart


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_two_rounds_equal_a_slow_version(decay):
    config = tiny(extractor__dropout=0.0, method="fedprox", training__weight_decay=decay)
    config = config.with_settings([f"methods.fedprox.mu={MU}", "training.batch_size=4"])
    ready = small(prepare(config), 12)
    same(fast(config, ready, 2), SlowFedProx(config, ready).run(2), atol=2e-5)


@pytest.mark.usefixtures("stepwise")
def test_mu_0_is_fedavg_to_the_bit():
    config = tiny()
    ready = small(prepare(config), 40)
    average = fast(config.with_settings(["method=fedavg"]), ready, 2).checkpoint().weights
    same(fast(config.with_settings(["method=fedprox", "methods.fedprox.mu=0"]), ready, 2), average)


def test_the_larger_mu_the_nearer_stay_the_sites():
    config = tiny(method="fedprox", training__rounds=1)
    ready = prepare(config)
    start = fast(config, ready, 0).checkpoint().weights
    distances = []
    for mu in (0.0, 0.5, 2.0):
        session = fast(config.with_settings([f"methods.fedprox.mu={mu}"]), ready, 1)
        trained = session.checkpoint().weights
        distances.append(sum(np.square(trained[name] - start[name]).sum() for name in start))
    assert distances[0] > distances[1] > distances[2] > 0


@pytest.mark.usefixtures("stepwise")
def test_lazy_mil_chooses_the_sentences_and_fedprox_holds_the_sites_back():
    config = tiny()
    ready = small(prepare(config), 40)

    def weights(*settings):
        return fast(config.with_settings(settings), ready, 2)

    lazy = weights("method=lazy-mil").checkpoint().weights
    for name in ("lazy-mil+fedprox", "fedprox+lazy-mil"):
        same(weights(f"method={name}", "methods.fedprox.mu=0"), lazy)
        both = weights(f"method={name}", "methods.fedprox.mu=1")
        for alone in (lazy, weights("method=fedprox", "methods.fedprox.mu=1").checkpoint().weights):
            with pytest.raises(AssertionError):
                same(both, alone, atol=1e-3)


@pytest.mark.usefixtures("stepwise")
def test_the_loss_that_is_reported_is_that_of_the_data():
    """One step a site, so that no pull has acted when the loss is taken."""
    config = tiny(training__epochs=1, training__batch_size=1000, extractor__dropout=0.0)
    ready = small(prepare(config), 40)
    losses = [
        fast(config.with_settings([f"method={name}"]), ready, 0).next_round().loss
        for name in ("fedavg", "fedprox")
    ]
    assert losses[0] == losses[1]


def test_a_pull_that_overshoots_is_refused_and_a_negative_one_too():
    config = tiny(method="fedprox").with_settings(["methods.fedprox.mu=10"])
    with pytest.raises(LostRoundError, match=r"a pull of 10 overshoots at a learning rate of 0\.3"):
        fast(config, prepare(config), 1)
    with pytest.raises(UserError, match=r"methods\.fedprox\.mu"):
        method("fedprox", {"fedprox": {"mu": -1}})
