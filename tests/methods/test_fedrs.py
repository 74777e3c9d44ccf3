"""FedRS against its equation, and where it is FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.runs.prepare import prepare
from tests.conftest import tiny
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small, with_sites


class SlowFedRS(SlowFedAvg):
    def adjusted(self, site, logits):
        return torch.stack([z if n else 0.3 * z for z, n in zip(logits, self.counts(site), strict=True)])


def test_two_rounds_equal_a_slow_version():
    config = tiny(extractor__dropout=0.0, partition__kind="dirichlet", partition__alpha=0.2)
    config = config.with_settings(["method=fedrs", "methods.fedrs.alpha=0.3", "training.batch_size=4"])
    ready = small(prepare(config), 12)
    slow = SlowFedRS(config, ready)
    assert any(0 in slow.counts(site) for site in slow.active(1))
    same(fast(config, ready, 2), slow.run(2), atol=2e-5)


@pytest.mark.usefixtures("stepwise")
def test_alpha_1_is_fedavg_to_the_bit():
    config = tiny(partition__kind="dirichlet", partition__alpha=0.1)
    ready = small(prepare(config), 40)
    restricted = config.with_settings(["method=fedrs", "methods.fedrs.alpha=1"])
    average = fast(config.with_settings(["method=fedavg"]), ready, 2)
    same(fast(restricted, ready, 2), average.checkpoint().weights)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_sites_of_one_class_and_a_class_that_nobody_has(alpha):
    config = tiny(method="fedrs", training__fraction=1.0).with_settings([f"methods.fedrs.alpha={alpha}"])
    ready = prepare(config)
    labels, rows = ready.dataset.corpus.relation[ready.dataset.train], ready.dataset.train
    ready = with_sites(ready, [rows[labels == 0], rows[labels == 1], rows[(labels == 2) | (labels == 3)]])
    weights = fast(config, ready, 2).checkpoint().weights
    assert all(np.isfinite(array).all() for array in weights.values())


def test_a_factor_above_1_or_below_0_is_refused():
    for alpha in (-0.1, 1.1):
        with pytest.raises(UserError, match=r"methods\.fedrs\.alpha"):
            method("fedrs", {"fedrs": {"alpha": alpha}})
