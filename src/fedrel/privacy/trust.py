"""How far the coordinator trusts a single site: what `[aggregation]` says, applied to a round's updates.

A norm bound and a cap change what single updates may do, before a method sees them; a rule replaces the mean of the
method. So they compose with every method that averages, and no method's file knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.privacy.coordinate_rules import Median, TrimmedMean
from fedrel.privacy.distance_rules import Agreeing, Bulyan, GeometricMedian, Krum, MultiKrum
from fedrel.tensors.weights import Floats, Rows, Sum, Tensors, WeightedMean, Weights

if TYPE_CHECKING:
    from fedrel.config.schema import AggregationSection


def new_sum(section: AggregationSection, base: Weights) -> Sum:
    """What turns a round's updates into one model, by the section's rule."""
    liars = section.liars
    rules: dict[str, Callable[[], Sum]] = {
        "mean": lambda: WeightedMean(base),
        "median": lambda: Median(base),
        "trimmed-mean": lambda: TrimmedMean(base, liars),
        "krum": lambda: Krum(base, liars),
        "multi-krum": lambda: MultiKrum(base, liars),
        "bulyan": lambda: Bulyan(base, liars),
        "geometric-median": lambda: GeometricMedian(base),
        "agreeing": lambda: Agreeing(base),
    }
    return rules[section.rule]()


class Standing:
    """In how many rounds each site's update was left out, and in how many it took part: kept with the weights.

    A lie that goes another way is left out in most of its rounds, an honest update now and then. So a site that was
    left out `after` times, and in more than half of its rounds, takes no part any more.
    """

    _LEFT_OUT, _ROUNDS = "standing/left_out", "standing/rounds"

    def __init__(self, state: Mapping[str, npt.NDArray[np.float32]], sites: int) -> None:
        nothing = np.zeros(sites, np.float32)
        self._left_out, self._rounds = (state.get(name, nothing) for name in (self._LEFT_OUT, self._ROUNDS))

    def excluded(self, after: int) -> list[int]:
        """The sites that take no part any more; none if `after` is 0."""
        found = (self._left_out >= max(after, 1)) & (2 * self._left_out > self._rounds)
        return np.flatnonzero(found).tolist() if after else []

    def with_round(self, sites: Sequence[int], left_out: Sequence[int]) -> dict[str, npt.NDArray[np.float32]]:
        """What is kept after one more round: its sites, and those of them that were left out."""
        counts = np.zeros((2, len(self._rounds)), np.float32)
        counts[0, list(left_out)] = counts[1, list(sites)] = 1
        return {self._LEFT_OUT: self._left_out + counts[0], self._ROUNDS: self._rounds + counts[1]}


def bound_factors(norms: Mapping[int, float], bound: float) -> dict[int, float]:
    """By how much each update is shortened so that none is longer than `bound` times the median; 1 for most."""
    longest = bound * float(np.median(list(norms.values())))
    return {site: min(1.0, longest / norm) if norm else 1.0 for site, norm in norms.items()}


def shortened(base: Weights, tensors: Tensors, factor: float) -> Tensors:
    """`base + factor * (tensors - base)`; the rows that `Rows` leave out move with the others."""
    if factor == 1:
        return tensors

    def short(there: Floats, here: Floats) -> Floats:
        moved: Floats = np.subtract(there, here, dtype=np.float32)
        moved *= np.float32(factor)
        moved += here
        return moved

    return {
        name: Rows(
            tensor.index, short(tensor.values, base[name][tensor.index]), 1 - factor * (1 - tensor.rest)
        )
        if isinstance(tensor, Rows)
        else short(tensor, base[name])
        for name, tensor in tensors.items()
    }


def capped(examples: Sequence[int], cap: float) -> list[int]:
    """Numbers of examples of which none is more than `cap` times their mean; those above it are lowered.

    >>> capped([100, 100, 100, 10_000], 2)
    [100, 100, 100, 300]
    """
    now = np.array(examples, np.int64)
    while len(now):
        most = max(int(cap * int(now.sum()) / len(now)), int(now.min()))
        if now.max() <= most:
            break
        now = np.minimum(now, most)
    return [int(one) for one in now]


def most_wins(claims: Sequence[int], triples: int, cap: float) -> int:
    """How many triples one site may win: `cap` times an equal share of those claimed.

    `claims` are how many each site claims, `triples` how many different ones. A site that claims everything must
    not thereby raise the cap: its claims count as those of the others do.
    """
    usual = np.minimum(claims, cap * float(np.median(claims)))
    return max(int(cap * min(triples, float(usual.sum())) / len(claims)), 1)


def ranks(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Each value's place among the others, from 0 to 1, equal ones in the middle of their places.

    >>> ranks(np.array([0.9, 0.1, 0.1, 0.95])).tolist()
    [0.625, 0.25, 0.25, 0.875]
    """
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - counts / 2
    return np.asarray(middles[which] / max(len(values), 1), np.float64)
