"""ε against closed forms, hand-worked bounds and a second accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.config.schema import Training
from fedrel.errors import UserError
from fedrel.privacy.accounting import Steps, composed_epsilon, epsilon, local_steps, noise_for
from fedrel.privacy.site_noise import round_steps


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
