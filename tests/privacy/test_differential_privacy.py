"""Clipped sums and their noise, by hand; and ε against closed forms, hand-worked bounds and a second accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.config.schema import Training
from fedrel.errors import UserError
from fedrel.privacy.differential_privacy import (
    STEPS,
    NoisedSum,
    RoundNoise,
    Steps,
    composed_epsilon,
    epsilon,
    local_steps,
    longest_noise,
    noise_for,
    noised,
    round_steps,
    system_normal,
)

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")


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


def gaussian_delta(noise: float, eps: float) -> float:
    """δ of one Gaussian sum (Balle and Wang 2018, Theorem 8)."""
    from scipy.stats import norm

    return float(
        norm.cdf(1 / (2 * noise) - eps * noise) - math.exp(eps) * norm.cdf(-1 / (2 * noise) - eps * noise)
    )


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_one_gaussian_sum_is_that_of_its_closed_form(noise):
    found = epsilon(noise, 1.0, 1, 1e-5)
    assert gaussian_delta(noise, found) <= 1e-5  # never too small,
    assert gaussian_delta(noise, found * 0.995) > 1e-5  # and not much too large


def test_sixteen_gaussian_sums_are_one_with_a_quarter_of_the_noise():
    assert epsilon(4.0, 1.0, 16, 1e-5) == pytest.approx(epsilon(1.0, 1.0, 1, 1e-5), rel=1e-6)


def test_two_accountants_agree():
    prv = pytest.importorskip("opacus.accountants").PRVAccountant()
    for _ in range(50):
        prv.step(noise_multiplier=1.0, sample_rate=0.1)
    ours = epsilon(1.0, 0.1, 50, 1e-5)
    assert ours == pytest.approx(5.15, abs=0.01)
    assert ours == pytest.approx(prv.get_epsilon(delta=1e-5), abs=0.02)


def test_steps_of_several_kinds_compose():
    halves = [Steps(1.0, 0.1, 20), Steps(1.0, 0.1, 30)]
    assert composed_epsilon(halves, 1e-5) == epsilon(1.0, 0.1, 50, 1e-5)
    # Gaussian sums of noise 3 and 4 are one of 1 / sqrt(1/9 + 1/16) = 2.4.
    both = composed_epsilon([Steps(3.0), Steps(4.0)], 1e-5)
    assert both == pytest.approx(epsilon(2.4, 1.0, 1, 1e-5), abs=2e-3)
    mixed = composed_epsilon([Steps(1.0, 0.1, 50), Steps(3.0)], 1e-5)
    assert max(epsilon(1.0, 0.1, 50, 1e-5), both) < mixed < epsilon(1.0, 0.1, 50, 5e-6) + both
    assert composed_epsilon([], 1e-5) == composed_epsilon([Steps(1.0, 0.1, 0)], 1e-5) == 0


@pytest.mark.parametrize("target", [0.5, 8.0])
def test_the_least_noise_for_an_epsilon(target):
    noise = noise_for(target, lambda noise: epsilon(noise, 0.1, 50, 1e-5))
    assert epsilon(noise, 0.1, 50, 1e-5) <= target < epsilon(noise * 0.995, 0.1, 50, 1e-5)


def test_an_epsilon_that_no_noise_gives_is_refused():
    with pytest.raises(UserError, match="no noise makes ε as small as"):
        noise_for(1e-6, lambda noise: epsilon(noise, 1.0, 1000, 1e-5))


def test_the_steps_of_local_training():
    dp = DifferentialPrivacy(level="sentence", noise=1.5, clip=1)
    training = Training(batch_size=32, epochs=3)
    assert local_steps(dp, training, 100) == Steps(1.5, 0.32, 9)  # 3 epochs of 1 / 0.32 = 3.125 steps
    assert local_steps(dp, training, 100, rounds=5) == Steps(1.5, 0.32, 45)
    assert local_steps(dp, training, 20) == Steps(1.5, 1.0, 3)  # all of them in every step


def hockey_stick(p, q, eps: float, width: float) -> float:
    """∫ max(p - e^ε q, 0): the δ that goes with ε, for one sum of this noise."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum() * width)


@pytest.mark.parametrize(("sites", "drawn", "noise"), [(4, 1, 1.0), (4, 2, 2.0), (10, 3, 1.0), (3, 2, 4.0)])
def test_samples_of_a_fixed_size_cost_more_than_poisson_samples_and_no_more_than_we_say(sites, drawn, noise):
    """One site has 1, all others -1: the worst case. Sums with that site, and with 0 in its place."""
    from scipy.stats import norm

    x, width = np.linspace(-80, 80, 400_001, retstep=True)
    share = drawn / sites

    def density(mean):
        return norm.pdf(x, mean, noise)

    without = (1 - share) * density(-drawn)
    present, absent = without + share * density(-(drawn - 1) + 1), without + share * density(-(drawn - 1))
    dp = DifferentialPrivacy(level="site", noise=noise, clip=1, sampling="fixed", delta=1e-3)
    step = round_steps(dp, share, 1)
    said = composed_epsilon([step], dp.delta)
    for p, q in ((present, absent), (absent, present)):
        assert hockey_stick(p, q, said, width) <= dp.delta
    poisson = epsilon(noise, share, 1, dp.delta)
    assert hockey_stick(present, absent, poisson, width) > dp.delta  # its ε would have been too small
    assert said <= epsilon(noise, 1.0, 1, dp.delta)  # never worse than to count on no sampling


def test_poisson_samples_and_all_sites_cost_what_the_accountant_says():
    dp = DifferentialPrivacy(level="site", noise=2, clip=1)
    assert round_steps(dp, 0.1, 50) == Steps(2, 0.1)
    assert round_steps(dp.model_copy(update={"sampling": "fixed"}), 1.0, 50) == Steps(2, 1.0)
