"""Skellam's noise in shares: the sum of the shares, what it costs, and that nothing overflows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.federation.summands import LARGEST_SUM, NoiseShares
from fedrel.privacy.differential_privacy import Steps, composed_epsilon, epsilon


def shares(noise: float = 1.0, clip: float = 0.5, sites: int = 9, size: int = 20_000) -> NoiseShares:
    return NoiseShares(DifferentialPrivacy(level="site", noise=noise, clip=clip), sites, size)


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_shares_of_two_thirds_of_the_sites_are_the_whole_noise(noise):
    plan, rng = shares(noise), np.random.default_rng(1)
    total = np.zeros(plan.size + 3, np.uint32)
    total[-3:] = 7
    for _ in range(6):
        plan.add(total, rng)
    assert total[-3:].tolist() == [7, 7, 7]  # the weight, the examples and the count get none
    found = plan.numbers.decode(total[:-3])
    assert np.std(found) == pytest.approx(noise * 0.5, rel=0.03)  # the stated multiple of the clip
    assert abs(found.mean()) < 4 * noise * 0.5 / plan.size**0.5


def test_two_sums_with_the_same_numbers_differ_by_their_noise_alone():
    plan = shares(size=4)
    numbers, _ = plan.numbers.encode(
        np.array([0.3, -0.2, 0.1, 0.0], np.float32), 1.0, np.random.default_rng(1)
    )
    assert plan.numbers.decode(numbers) == pytest.approx([0.3, -0.2, 0.1, 0.0], abs=plan.numbers.step)
    noised = numbers.copy()
    plan.add(noised, np.random.default_rng(2))
    assert (noised != numbers).all()


@given(
    st.floats(0.05, 1000), st.floats(1e-3, 1e3), st.integers(3, 2000), st.sampled_from([1, 1000, 10_000_000])
)
def test_all_sites_numbers_and_ten_deviations_of_noise_fit(noise, clip, sites, size):
    plan = shares(noise, clip, sites, size)
    step = plan.numbers.step
    most = sites * clip / step + 10 * math.sqrt(sites * plan.variance)
    inflated = plan.sensitivity * step / clip  # rounding adds to the sensitivity, and so to the noise
    assert most <= LARGEST_SUM * max(1.0, inflated) * 1.01
    assert plan.variance / 2 < 2**53  # Poisson numbers are whole in float64
    assert inflated < 1.2 or size > 1e6 or noise > 100


def test_the_divergence_is_at_most_what_the_paper_says():
    """Against sums over all whole numbers: the Rényi divergence of Skellam's noise from itself, shifted by one."""
    from scipy.stats import skellam

    for variance, shift in ((10.0, 1), (50.0, 5), (200.0, 20)):
        far = int(10 * variance**0.5)  # ten deviations to either side
        k = np.arange(-far, far + 1)
        p, q = (skellam.logpmf(k, variance / 2, variance / 2, loc=loc) for loc in (0, shift))
        for order in (2, 4, 8):
            exact = np.log(np.exp(order * p + (1 - order) * q).sum()) / (order - 1)
            assert exact <= order * shift**2 / (2 * variance) + 1.5 * shift / variance


def test_what_a_sum_costs():
    plan = shares(noise=2.0, clip=0.5, sites=9, size=10_000)
    cost = plan.cost
    deviation = 2.0 * plan.sensitivity
    assert cost == Steps(2.0, 1.0, 1, 1.5 * 100 * plan.sensitivity / deviation**2)
    assert 0 < cost.extra < 1e-4
    # Composed by Rényi divergences: a little more than Gaussian noise by PLD, never less.
    both = composed_epsilon([cost, cost, cost], 1e-5)
    assert epsilon(2.0, 1.0, 3, 1e-5) < both < 1.1 * epsilon(2.0, 1.0, 3, 1e-5)
    with_sampled = composed_epsilon([cost, Steps(1.0, 0.1, 10)], 1e-5)
    assert with_sampled > max(composed_epsilon([cost], 1e-5), epsilon(1.0, 0.1, 10, 1e-5))
