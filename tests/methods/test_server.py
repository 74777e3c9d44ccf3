"""FedAvgM and FedAdam: by hand, against slow versions, and where they are FedAvg."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.runs.prepare import prepare
from tests.conftest import tiny
from tests.methods.carried import same_when_resumed
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small


def steps(kind, changes):
    """Where a weight that starts at 1 goes when the sites move by these changes."""
    fed = SimpleNamespace(state={}, weights={"w": np.ones(1, np.float32)})
    found = []
    for change in changes:
        fed.weights = kind.server_update(fed, {"w": fed.weights["w"] + np.float32(change)})
        found.append(float(fed.weights["w"][0]))
    assert all(array.dtype == np.float32 for array in fed.state.values())
    return found


def test_momentum_by_hand():
    kind = method("fedavgm", {"fedavgm": {"momentum": 0.5, "server_rate": 0.1}})
    # v: 2, then 0.5 * 2 - 4 = -3, then 0.5 * -3 + 0 = -1.5; each step is a tenth of it.
    assert steps(kind, [2, -4, 0]) == pytest.approx([1.2, 0.9, 0.75], abs=1e-6)


def test_adam_by_hand():
    options = {"server_rate": 0.1, "beta1": 0.5, "beta2": 0.75, "adaptivity": 2.0}
    # v begins at 2^2. m, v: 2, 0.75 * 4 + 0.25 * 16 = 7; then 0.5 * 2 - 0.5 * 4 = -1, 0.75 * 7 + 0.25 * 16 = 9.25.
    first = 1 + 0.1 * 2 / (np.sqrt(7) + 2)
    second = first - 0.1 / (np.sqrt(9.25) + 2)
    assert steps(method("fedadam", {"fedadam": options}), [4, -4]) == pytest.approx([first, second], abs=1e-6)


class SlowFedAvgM(SlowFedAvg):
    """Hsu et al. 2019: v = beta v + d, w += eta v."""

    def __init__(self, config, ready):
        super().__init__(config, ready)
        self.before = self.weights
        self.v = {name: torch.zeros_like(tensor) for name, tensor in self.weights.items()}

    def aggregated(self, round_, trained):
        self.v = {name: 0.8 * v + self.weights[name] - self.before[name] for name, v in self.v.items()}
        self.weights = {name: w + 0.5 * self.v[name] for name, w in self.before.items()}
        self.before = self.weights


class SlowFedAdam(SlowFedAvgM):
    """Reddi et al. 2021, Algorithm 2."""

    def __init__(self, config, ready):
        super().__init__(config, ready)
        self.m = dict(self.v)
        self.v = {name: torch.full_like(v, 0.01**2) for name, v in self.v.items()}

    def aggregated(self, round_, trained):
        for name, before in self.before.items():
            d = self.weights[name] - before
            self.m[name] = 0.7 * self.m[name] + 0.3 * d
            self.v[name] = 0.9 * self.v[name] + 0.1 * d * d
            self.weights[name] = before + 0.02 * self.m[name] / (self.v[name].sqrt() + 0.01)
        self.before = dict(self.weights)


@pytest.mark.parametrize(
    ("slow", "settings"),
    [
        (SlowFedAvgM, ["method=fedavgm", "methods.fedavgm.momentum=0.8", "methods.fedavgm.server_rate=0.5"]),
        (
            SlowFedAdam,
            [
                "method=fedadam",
                "methods.fedadam={server_rate=0.02, beta1=0.7, beta2=0.9, adaptivity=0.01}",
            ],
        ),
    ],
)
def test_three_rounds_equal_a_slow_version(slow, settings):
    config = tiny(extractor__dropout=0.0, training__batch_size=4).with_settings(settings)
    ready = small(prepare(config), 10)
    same(fast(config, ready, 3), slow(config, ready).run(3), atol=2e-5)


def test_no_momentum_and_a_rate_of_1_is_fedavg_to_the_bit():
    config = tiny()
    ready = prepare(config)
    average = fast(config.with_settings(["method=fedavg"]), ready, 2).checkpoint().weights
    same(fast(config.with_settings(["method=fedavgm", "methods.fedavgm.momentum=0"]), ready, 2), average)


@pytest.mark.parametrize("name", ["fedavgm", "fedadam+lazy-mil"])
def test_a_resumed_run_gives_the_same_weights(name, tmp_path):
    same_when_resumed(tiny(method=name), tmp_path)


def test_wrong_options_are_refused():
    for name, option, value in (
        ("fedavgm", "momentum", 1),
        ("fedadam", "beta2", 1),
        ("fedadam", "adaptivity", 0),
    ):
        with pytest.raises(UserError, match=rf"methods\.{name}\.{option}"):
            method(name, {name: {option: value}})
