"""Clipped sums and their noise, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.privacy.site_noise import STEPS, NoisedSum, RoundNoise, longest_noise, noised, system_normal


def zeros(count):
    return np.zeros(count)


def ones(count):
    return np.ones(count)


def test_a_mean_of_clipped_numbers_with_noise():
    total = NoisedSum(RoundNoise(clip=5.0, updates=0.2), 2)
    total.add(np.array([3, 4], np.float32))  # of length 5: as it is
    total.add(np.array([[6], [8]], np.float32))  # of length 10: half
    total.add(np.array([0, 0], np.float32))
    assert total.count == 3
    # The sum is [6, 8], its noise has a standard deviation of 0.2 * 5 = 1; four sites are expected.
    assert total.mean(4.0, ones).tolist() == [7 / 4, 9 / 4]


@given(
    st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_one_site_moves_the_mean_by_no_more_than_the_clip(sites, which):
    which %= len(sites)
    means = []
    for adds in (sites, [one for number, one in enumerate(sites) if number != which]):
        total = NoisedSum(RoundNoise(clip=2.0, updates=1.0), 3)
        for one in adds:
            total.add(np.array(one, np.float32))
        means.append(total.mean(2.5, zeros))
    assert np.linalg.norm(means[0] - means[1]) <= 2.0 / 2.5 + 2e-6, (
        "but for the grid that the noised sum is told on"
    )


def test_the_norm_follows_the_quantile():
    """Andrew et al. 2021, Algorithm 1: C exp(-0.2 (b - quantile))."""
    noise = RoundNoise(clip=1.0, updates=1.0, count=3.0)
    total = NoisedSum(noise, 1)
    for size in (0.5, 1.0, 7.0, 9.0, 11.0):  # two of five are within
        total.add(np.array([size]))
    assert total.next_clip(0.5, 5.0, zeros) == pytest.approx(math.exp(-0.2 * (0.4 - 0.5)))
    # A normal number of 1 adds 3 to the count of five.
    assert total.next_clip(0.5, 5.0, ones) == pytest.approx(math.exp(-0.2 * (0.4 + 3 / 5 - 0.5)))


@pytest.mark.parametrize(
    ("noise", "sites", "count"), [(1.0, 200.0, 10.0), (1.0, 10.0, 5**0.5 / 2**0.5), (4.0, 10.0, 40**0.5)]
)
def test_count_and_sum_together_are_worth_the_noise(noise, sites, count):
    """A twentieth of the sites, as in the paper; but so much that it costs a tenth of the budget at most."""
    dp = DifferentialPrivacy(level="site", noise=noise, clip=3, adaptive_clip=0.5)
    found = RoundNoise.of(dp, 0.7, sites)
    assert found.clip == 0.7 and found.count == pytest.approx(count)
    assert found.updates**-2 + (2 * found.count) ** -2 == pytest.approx(noise**-2)
    assert (2 * found.count) ** -2 <= 0.1 * noise**-2 + 1e-12


def test_a_fixed_norm_spends_all_on_the_sum():
    dp = DifferentialPrivacy(level="site", noise=1.5, clip=3)
    assert RoundNoise.of(dp, 3, 10) == RoundNoise(3, 1.5, 0)


def test_noise_of_the_operating_system_is_normal():
    from scipy.stats import kstest

    found = system_normal(100_001)
    assert len(found) == 100_001 and np.isfinite(found).all()
    assert kstest(found, "norm").pvalue > 1e-9
    assert abs(np.corrcoef(found[:50_000], found[50_001:])[0, 1]) < 0.03  # the two halves that a pair gives
    assert system_normal(1).shape == (1,) and (system_normal(4) != system_normal(4)).any()


def test_how_far_noise_moves_weights():
    dp = DifferentialPrivacy(level="site", noise=2, clip=3)
    assert longest_noise(dp, 6, 100) == pytest.approx(2 * 3 / 6 * (10 + 8))
    drawn = np.linalg.norm(np.random.default_rng(1).standard_normal((2000, 100)), axis=1)
    assert 10 < drawn.max() < 18


def test_noised_numbers_lie_on_a_grid_that_does_not_depend_on_them():
    """Floating point noise reaches other numbers from 0 than from 1; which, the last bits would tell."""
    draw = np.random.default_rng(1).standard_normal
    for start in (0.0, 1.0, 1e-9):
        steps = noised(np.full(2000, start), 0.5, draw) / (0.5 / STEPS)
        assert np.array_equal(steps, np.rint(steps))
        assert np.std(steps * 0.5 / STEPS) == pytest.approx(0.5, rel=0.1)
