"""Methods that are FedAvg when their own term counts for nothing, as they are run: by kernels if installed.

Tests of the methods compare the two step by step, to the bit. So do kernels, of a method that is trained by them.
MOON is trained through the graph, which adds in another order than FedAvg's kernels, but drops the same units.
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


@pytest.mark.parametrize("setting", ["fedprox.mu=0", "fedrs.alpha=1", "fedlc.tau=0", "fedcmc.mu=0"])
def test_without_its_own_term_a_method_is_fedavg_to_the_bit(averaged, setting):
    config, ready, weights = averaged
    config = config.with_settings([f"method={setting.split('.')[0]}", f"methods.{setting}"])
    same(fast(config, ready, 2), weights)


def test_without_its_contrast_moon_is_fedavg(averaged):
    config, ready, weights = averaged
    same(fast(config.with_settings(["method=moon", "methods.moon.mu=0"]), ready, 2), weights, atol=1e-5)


def test_scaffold_begins_as_fedavg_does(averaged, tmp_path):
    """In the first round no site has a control variate yet: two forces of zero."""
    config, ready, _ = averaged
    plain = fast(config.with_settings(["methods.fedavg.weighting=uniform"]), ready, 1).checkpoint().weights
    same(fast(config.with_settings(["method=scaffold"]), ready, 1, tmp_path), plain, atol=1e-6)
