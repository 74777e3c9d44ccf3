"""Methods that are FedAvg when their own term counts for nothing, as they are run: FedAvg by kernels if installed.

Tests of the methods compare the two to the bit, step by step. Kernels add in another order, but drop the same
units.
"""

from __future__ import annotations

import pytest

from fedrel.runs.prepare import prepare
from tests.conftest import tiny
from tests.methods.slow_rounds import fast, same


@pytest.fixture(scope="module")
def averaged():
    """A config, its data, and FedAvg's weights after two rounds."""
    config = tiny(extractor__bias=False, extractor__dropout=0.5, method="fedavg")
    ready = prepare(config)
    return config, ready, fast(config, ready, 2).checkpoint().weights


@pytest.mark.parametrize(
    "setting", ["fedprox.mu=0", "moon.mu=0", "fedrs.alpha=1", "fedlc.tau=0", "fedcmc.mu=0"]
)
def test_without_its_own_term_a_method_is_fedavg(averaged, setting):
    config, ready, weights = averaged
    config = config.with_settings([f"method={setting.split('.')[0]}", f"methods.{setting}"])
    same(fast(config, ready, 2), weights, atol=1e-5)
