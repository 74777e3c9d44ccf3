"""What noise is worth: ε, for a given δ, of all noised sums that were made from the same data.

Each sum is a step: parts are drawn with some rate, each is clipped to norm S, and their sum is told with Gaussian
noise of standard deviation `noise` times S. Two data sets are neighbours if they are the same but for one part (a
site, a sentence) that adds nothing in one of them; how many parts there are is public. dp-accounting composes the
privacy loss distributions (PLD) of the steps and rounds so that ε is never too small. Of Skellam's noise only the
Rényi divergence is known: where such steps are among them, all are composed by that (RDP).

Steps of several kinds compose, so a list of them is all that has to be kept of earlier runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.config.config_sections import DifferentialPrivacy
    from fedrel.config.schema import Training

INTERVAL = 1e-3  # between privacy losses that are told apart,
WIDEST = 100.0  # at most, where little noise makes them large
LEAST_NOISE, MOST_NOISE = 0.05, 1e4  # where the noise for an ε is searched: with less, ε promises nothing
ORDERS = (*range(2, 64), *range(64, 257, 8), 512, 1024)  # of Rényi divergences: whole, as for Skellam's noise
CLOSE = 1e-3  # how closely the noise for a wanted ε is searched, relative to it


@dataclass(frozen=True, slots=True)
class Steps:
    """So many noised sums of a kind: `rate` is the probability with which a part is in one of them."""

    noise: float
    rate: float = 1.0
    count: int = 1
    extra: float = 0.0
    """What the Rényi divergence of a sum with Skellam's noise has beyond that of Gaussian noise, at every order."""


def epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """ε of so many steps of one kind, with parts drawn by Poisson sampling."""
    return composed_epsilon([Steps(noise, rate, steps)], delta)


def composed_epsilon(steps: Iterable[Steps], delta: float) -> float:
    """ε of steps of several kinds over the same data, in any order; 0 without any."""
    counts: dict[Steps, int] = {}
    for one in steps:
        if one.count and one.rate:
            kind = replace(one, count=1)
            counts[kind] = counts.get(kind, 0) + one.count
    if not counts:
        return 0.0
    if any(kind.extra for kind in counts):
        return _composed_by_orders(frozenset(counts.items()), delta)
    return _composed(tuple(sorted((kind.noise, kind.rate, count) for kind, count in counts.items())), delta)


def noise_for(target: float, cost: Callable[[float], float]) -> float:
    """The least noise for which ε, which `cost` tells of a noise, is at most `target`."""
    low, high = LEAST_NOISE, MOST_NOISE
    if not cost(high) <= target:
        raise UserError(f"no noise makes ε as small as {target:g}", hint="ask for fewer rounds")
    while high > low * (1 + CLOSE):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high


def local_steps(dp: DifferentialPrivacy, training: Training, examples: int, rounds: int = 1) -> Steps:
    """The steps of so many rounds of local training at a site with so many examples, at `level = "sentence"`.

    Each step draws every example with probability q = B / n, and an epoch has 1 / q of them, to the nearest whole
    number: so that on average every example is in one of them.
    """
    rate = min(1.0, training.batch_size / examples)
    return Steps(dp.noise, rate, rounds * training.epochs * round(1 / rate))


def check_accountant() -> None:
    """Fail if dp-accounting, which computes ε, is not installed."""
    if find_spec("dp_accounting") is None:
        raise UserError(
            "privacy.dp needs dp-accounting, which is not installed", hint="pip install 'fedrel[privacy]'"
        )


@lru_cache(maxsize=4096)
def _composed(kinds: tuple[tuple[float, float, int], ...], delta: float) -> float:
    spare_stderr()
    from dp_accounting.pld import privacy_loss_distribution as pld

    weakest = min(noise / count**0.5 if rate == 1 else noise for noise, rate, count in kinds)
    interval = min(INTERVAL * max(1.0, weakest**-2), WIDEST)
    whole: Any = None
    for noise, rate, count in kinds:
        if rate == 1:  # many Gaussian sums are one with less noise
            one = pld.from_gaussian_mechanism(noise / count**0.5, value_discretization_interval=interval)
        else:
            one = pld.from_gaussian_mechanism(
                noise, sampling_prob=rate, value_discretization_interval=interval
            ).self_compose(count)
        whole = one if whole is None else whole.compose(one)
    return float(whole.get_epsilon_for_delta(delta))


@lru_cache(maxsize=4096)
def _composed_by_orders(counts: frozenset[tuple[Steps, int]], delta: float) -> float:
    spare_stderr()
    import numpy as np
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    accountant, extra = RdpAccountant(orders=ORDERS), 0.0
    for kind, count in counts:
        sampled = PoissonSampledDpEvent(kind.rate, GaussianDpEvent(kind.noise))
        accountant.compose(GaussianDpEvent(kind.noise) if kind.rate == 1 else sampled, count)
        extra += kind.extra * count
    found, _ = compute_epsilon(ORDERS, np.asarray(accountant.rdp) + extra, delta)
    return float(found)


def spare_stderr() -> None:
    """Keep absl, which dp-accounting imports, from closing what was `stderr` then, when others set up logging."""
    from absl import logging

    logging.get_absl_handler().python_handler.stream = sys.__stderr__
