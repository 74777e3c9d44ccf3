"""FedLC against its equation, and where it is FedAvg."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.runs.prepare import prepare
from tests.conftest import tiny
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small, with_sites


class SlowFedLC(SlowFedAvg):
    def adjusted(self, site, logits):
        """A class without sentences is left out of the sum, by a number that no exponential survives."""
        lowered = [
            z - 2.5 / n**0.25 if n else z - 1e4 for z, n in zip(logits, self.counts(site), strict=True)
        ]
        return torch.stack(lowered)


def test_two_rounds_equal_a_slow_version():
    config = tiny(extractor__dropout=0.0, partition__kind="dirichlet", partition__alpha=0.5)
    config = config.with_settings(["method=fedlc", "methods.fedlc.tau=2.5", "training.batch_size=4"])
    ready = small(prepare(config), 12)
    slow = SlowFedLC(config, ready)
    assert any(0 in slow.counts(site) for site in slow.active(1))
    same(fast(config, ready, 2), slow.run(2), atol=2e-5)


def test_the_logits_by_hand():
    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    site = SimpleNamespace(label_counts=np.array([16, 0, 1]))
    found = method("fedlc", {}).calibration(site).of(logits)
    assert found.tolist() == [[0.5, -np.inf, 2.0]]
    torch.nn.functional.cross_entropy(found, torch.tensor([2])).backward()
    p = 1 / (1 + np.exp(1.5))
    assert logits.grad.tolist() == [[pytest.approx(p), 0.0, pytest.approx(-p)]]


@pytest.mark.usefixtures("stepwise")
def test_tau_0_is_fedavg_to_the_bit():
    config = tiny(partition__kind="dirichlet", partition__alpha=0.1)
    ready = small(prepare(config), 40)
    calibrated = config.with_settings(["method=fedlc", "methods.fedlc.tau=0"])
    average = fast(config.with_settings(["method=fedavg"]), ready, 2)
    same(fast(calibrated, ready, 2), average.checkpoint().weights)


def test_sites_of_one_class_and_a_class_that_nobody_has():
    config = tiny(method="fedlc", training__fraction=1.0, training__weight_decay=0.0)
    ready = prepare(config)
    labels, rows = ready.dataset.corpus.relation[ready.dataset.train], ready.dataset.train
    ready = with_sites(ready, [rows[labels == 0], rows[labels == 1], rows[(labels == 2) | (labels == 3)]])
    session = fast(config, ready, 2)
    assert all(np.isfinite(array).all() for array in session.checkpoint().weights.values())
    alone = with_sites(ready, [rows[labels == 0]])  # one class only: nothing to tell apart, nothing to learn
    same(fast(config, alone, 2), fast(config, alone, 0).checkpoint().weights)


def test_a_negative_tau_is_refused():
    with pytest.raises(UserError, match=r"methods\.fedlc\.tau"):
        method("fedlc", {"fedlc": {"tau": -1}})
