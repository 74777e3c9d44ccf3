"""How far the coordinator trusts a single site: what `[aggregation]` says, applied to a round's updates.

A norm bound and a cap change what single updates may do, before a method sees them; a rule replaces the mean of the
method. So they compose with every method that averages, and no method's file knows of them.

How far sites moved the weights, and which of them stand out, is told by norms alone, before anything is averaged.
Steps of local training are about equally long at all sites. So an update's norm grows with the number of examples,
but not faster. An update that is many times as long as the round's median, and as its number of examples can
explain, is not what honest training gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.privacy.robust_rules import (
    Agreeing,
    Bulyan,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from fedrel.tensors.weights import Floats, Rows, Sum, Tensors, WeightedMean, Weights

if TYPE_CHECKING:
    from fedrel.config.schema import AggregationSection


STANDS_OUT = 5.0  # times as long as the round's other updates explain: named when something goes wrong
DIVERGES = 10.0  # times as far as they explain: a mean that moves so far is not used
_AT_ONCE = 8192  # numbers of a block: it stays in the processor's cache


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


class Norms:
    """The norms ||w_k - w|| of sites' weights w_k, where w are the weights that they started from."""

    def __init__(self, base: Weights) -> None:
        self.base = base
        self._squares: dict[str, float] = {}  # of whole tables, computed when they are first needed

    def of(self, tensors: Tensors) -> float:
        """The norm of one site's move. A row that its `Rows` leave out moved from w to `rest * w`."""
        squares = 0.0
        for name, tensor in tensors.items():
            base = self.base[name]
            if isinstance(tensor, Rows):
                own, fading = base[tensor.index], 1 - tensor.rest
                if fading:
                    squares += fading**2 * max(self._table(name) - _squares(own), 0.0)
                squares += _squares(tensor.values, own)
            else:
                squares += _squares(tensor, base)
        return float(np.sqrt(squares))

    def _table(self, name: str) -> float:
        if name not in self._squares:
            self._squares[name] = _squares(self.base[name])
        return self._squares[name]


@dataclass
class Moves:
    """The norms and numbers of examples of a round's updates, by site."""

    norms: dict[int, float] = field(default_factory=dict)
    examples: dict[int, int] = field(default_factory=dict)

    def add(self, site: int, norm: float, examples: int) -> None:
        """Note a site's update."""
        self.norms[site], self.examples[site] = norm, examples

    def explained(self) -> dict[int, float]:
        """How long each update may be expected to be at most: the median, times its examples over their median."""
        if not self.norms:
            return {}
        norm, examples = np.median(list(self.norms.values())), np.median(list(self.examples.values()))
        return {site: float(norm * max(1.0, own / examples)) for site, own in self.examples.items()}

    def stood_out(self, least: float = STANDS_OUT) -> dict[int, float]:
        """The sites whose update is more than `least` times as long as expected, and how many times."""
        explained = self.explained()
        factors = {site: norm / explained[site] for site, norm in self.norms.items() if explained[site] > 0}
        return {site: round(factor, 1) for site, factor in factors.items() if factor > least}

    def diverges(self, norm: float) -> bool:
        """Whether a mean of these updates that moved so far is too far for honest ones."""
        return bool(self.norms) and norm > DIVERGES * max(self.explained().values()) > 0


def described(stood_out: Mapping[int, float], names: Mapping[int, str] | tuple[str, ...]) -> str:
    """Which updates stood out and by how much, in words; empty if none did."""
    said = [f"{names[site]}'s update is {factor:,.0f} times" for site, factor in stood_out.items()]
    return f"{', '.join(said)} as long as the round's others explain" if said else ""


def _squares(left: Floats, right: Floats | None = None) -> float:
    """||left - right||^2, or ||left||^2, in float64, block by block: nothing as large as the model is allocated."""
    flat = left.reshape(-1)
    other = None if right is None else right.reshape(-1)
    room: npt.NDArray[np.float64] = np.empty(min(_AT_ONCE, len(flat)))
    total = 0.0
    for start in range(0, len(flat), _AT_ONCE):
        block = room[: min(_AT_ONCE, len(flat) - start)]
        if other is None:
            block[:] = flat[start : start + len(block)]
        else:
            np.subtract(flat[start : start + len(block)], other[start : start + len(block)], out=block)
        total += float(np.dot(block, block))
    return total
