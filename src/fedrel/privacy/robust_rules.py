"""Rules that replace the mean of updates, so that some lying sites do little harm.

The median and the trimmed mean combine every coordinate by itself (Yin et al. 2018, Byzantine-Robust Distributed
Learning: Towards Optimal Statistical Rates), as does the last step of Bulyan. Every site counts the same there: of
a sorted column it is not known which site a number is from. Columns are sorted by a network of comparisons of
whole rows, which is the same work for every column: a loop that processors do many columns of at a time.

Others look at how far apart the updates are: Krum and Multi-Krum (Blanchard et al. 2017, Machine Learning with
Adversaries), Bulyan (El Mhamdi et al. 2018, The Hidden Vulnerability of Distributed Learning in Byzantium) and the
geometric median (Pillutla et al. 2022, Robust Aggregation for Federated Learning). These need nothing but the
products of the updates with each other, a small matrix that is added up block by block. What they then choose is
averaged as any other updates are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from fedrel.privacy.update_blocks import Block, Stacked
from fedrel.tensors import compiling
from fedrel.tensors.weights import Doubles, Floats, NoAnswerError, Tensors, WeightedMean, Weights

Pairs = npt.NDArray[np.int32]

_STEPS, _NEAR = 100, 1e-6  # of Weiszfeld's algorithm: at most so many, and what counts as no distance
_AGREES = 0.4  # of the median agreement: an update with less goes another way,
_DEVIATIONS = 2.0  # if it is also so many median deviations below
_SHARES = 2**20  # weights of the geometric median are multiples of 1 / _SHARES, so that products are exact


class CoordinateRule:
    """The base of rules for each coordinate: a `Sum` that keeps all sites' weights until the result is due."""

    def __init__(self, base: Weights) -> None:
        self._base = base
        self._sites: list[Tensors] = []

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights; `weight` is not used, all sites count the same."""
        self._sites.append(tensors)

    def result(self) -> dict[str, Floats]:
        """The model, block by block; `NoAnswerError` if nothing was added."""
        if not self._sites:
            raise NoAnswerError
        return combined(self._base, self._sites, self)

    def combine(self, values: Floats) -> Doubles:
        """One number for each column of [sites, n]; the block may be overwritten."""
        raise NotImplementedError


class Median(CoordinateRule):
    """The median of each coordinate."""

    def combine(self, values: Floats) -> Doubles:
        """The middle of each sorted column, or the mean of the two in the middle."""
        return middle(values, (len(values) - 1) // 2)


class TrimmedMean(CoordinateRule):
    """The mean of each coordinate without its smallest and largest values."""

    def __init__(self, base: Weights, share: float) -> None:
        super().__init__(base)
        self._share = share

    def combine(self, values: Floats) -> Doubles:
        """The mean of each sorted column without int(share * sites) numbers at either end."""
        return middle(values, int(self._share * len(values) + 1e-9))


def combined(base: Weights, sites: Sequence[Tensors], rule: CoordinateRule) -> dict[str, Floats]:
    """The model whose every coordinate is what the rule makes of the sites' values.

    A row that no site lists is a factor times the global one at every site, so the rule is applied to the factors.
    """
    found = {name: np.empty(tensor.shape, np.float32) for name, tensor in base.items()}
    for part in Stacked(base, sites).parts():
        if isinstance(part, Block):
            part.put(found, rule.combine(part.values).astype(np.float32))
        else:
            factors = part.factors.astype(np.float32)[:, None]
            common = rule.combine(factors)[0]
            found[part.name][part.rows] = (common * base[part.name][part.rows]).astype(np.float32)
    return found


def middle(values: Floats, cut: int) -> Doubles:
    """The mean of each column without its `cut` smallest and largest numbers; the block is sorted in part."""
    sites = len(values)
    compare_rows(values, comparisons(sites, cut))
    total = np.zeros(values.shape[1])
    for row in values[cut : sites - cut]:
        total += row
    return total / (sites - 2 * cut)


def compare_rows(values: Floats, pairs: Pairs) -> None:
    """For each pair of rows, in order: the smaller numbers go to the first, the larger to the second."""
    if compiling.has_numba():
        from fedrel.privacy import rule_kernels

        rule_kernels.compare_rows(values, pairs)
        return
    for low, high in pairs:
        smaller = np.minimum(values[low], values[high])
        np.maximum(values[low], values[high], out=values[high])
        values[low] = smaller


@cache
def comparisons(rows: int, cut: int = 0) -> Pairs:
    """The pairs of rows to compare, in order, so that all but the first and last `cut` rows are where they belong.

    This is Batcher's odd-even merge sort (1968). Comparisons that matter only for the order among the rows that are
    cut are left out.
    """
    pairs = list(_sorting(rows))
    wanted = set(range(cut, rows - cut))
    kept: list[tuple[int, int]] = []
    for pair in reversed(pairs):
        if wanted.intersection(pair):
            wanted.update(pair)
            kept.append(pair)
    found = np.array(kept[::-1], np.int32).reshape(-1, 2)
    found.flags.writeable = False
    return found


class DistanceRule:
    """The base of rules that look at distances: a `Sum` that keeps all sites' weights until the result is due."""

    def __init__(self, base: Weights, liars: float = 0.0) -> None:
        self._base, self._share = base, liars
        self.left_out: list[int] = []  # once there is a result: which updates are not in it, in their order
        self._sites: list[Tensors] = []
        self._weights: list[float] = []

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights."""
        self._sites.append(tensors)
        self._weights.append(weight)

    def result(self) -> dict[str, Floats]:
        """The weighted mean of the sites that are chosen; `NoAnswerError` if there are too few."""
        mean = WeightedMean(self._base)
        chosen = self.chosen(gram(self._base, self._checked()))
        self.left_out = [site for site in range(len(self._sites)) if site not in chosen]
        for site, weight in chosen.items():
            mean.add(self._sites[site], weight)
        return mean.result()

    def chosen(self, products: Doubles) -> dict[int, float]:
        """How much each chosen site counts, given the products of the updates, [sites, sites]."""
        raise NotImplementedError

    @property
    def _liars(self) -> int:
        """f, how many of the sites may lie."""
        return int(self._share * len(self._sites) + 1e-9)

    def _needs(self) -> int:
        """How many updates the rule needs at least."""
        return 1

    def _checked(self) -> list[Tensors]:
        if len(self._sites) < self._needs():
            few = f"there are {len(self._sites)} updates, and the rule needs {self._needs()}"
            raise NoAnswerError(few if self._sites else "")
        return self._sites


class Krum(DistanceRule):
    """The one update whose n - f - 2 nearest neighbours are nearest to it."""

    def chosen(self, products: Doubles) -> dict[int, float]:
        """The site with the lowest score; among equals, the first."""
        return {int(np.argmin(scores(distances(products), self._liars))): 1.0}

    def _needs(self) -> int:
        return 2 * self._liars + 3


class MultiKrum(Krum):
    """The weighted mean of the n - f updates with the lowest scores."""

    def chosen(self, products: Doubles) -> dict[int, float]:
        """All but the f sites with the highest scores."""
        order = np.argsort(scores(distances(products), self._liars), kind="stable")
        return {
            site: self._weights[site] for site in sorted(order[: len(self._sites) - self._liars].tolist())
        }


class GeometricMedian(DistanceRule):
    """The point with the smallest weighted sum of distances to all updates, by Weiszfeld's algorithm."""

    def chosen(self, products: Doubles) -> dict[int, float]:
        """Every site, the less the further away. The point is a mean of the updates, so shares say all of it."""
        counts = np.rint(median_shares(products, np.array(self._weights)) * _SHARES)
        return {site: float(count) for site, count in enumerate(counts) if count}


class Agreeing(DistanceRule):
    """The weighted mean of the updates that go the way that most go.

    Honest updates have a direction in common, however long and noisy each is. An update's agreement is the median
    of its cosines with the others: neither the length of lies nor that some of them go the same way counts for it,
    as long as most updates are honest. One is left out if its agreement is less than two fifths of the median one,
    and farther below it than chance explains, twice the median deviation: a lie that goes elsewhere, and of honest
    updates few. Adaptive model averaging (Muñoz-González et al. 2019, Byzantine-Robust Federated Machine Learning
    through Adaptive Model Averaging) compares with the mean instead.
    """

    def chosen(self, products: Doubles) -> dict[int, float]:
        """The sites that agree."""
        found = agreement(products)
        middle = float(np.median(found))
        chance = float(np.median(np.abs(found - middle)))
        least = min(_AGREES * middle, middle - _DEVIATIONS * chance)
        return {site: weight for site, weight in enumerate(self._weights) if found[site] >= least}


class Bulyan(DistanceRule):
    """Krum chooses n - 2f updates one by one; of these, each coordinate's n - 4f values nearest the median are
    averaged."""

    def result(self) -> dict[str, Floats]:
        """The model; `NoAnswerError` with fewer than 4f + 3 updates."""
        sites, liars = self._checked(), self._liars
        left, apart = list(range(len(sites))), distances(gram(self._base, sites))
        picked: list[int] = []
        while len(picked) < len(sites) - 2 * liars:
            best = left[int(np.argmin(scores(apart[np.ix_(left, left)], liars)))]
            picked.append(best)
            left.remove(best)
        nearest = NearestToMedian(self._base, len(picked) - 2 * liars)
        return combined(self._base, [sites[site] for site in picked], nearest)

    def _needs(self) -> int:
        return 4 * self._liars + 3


class NearestToMedian(CoordinateRule):
    """The mean of the `count` values of each coordinate that are nearest to the median of all."""

    def __init__(self, base: Weights, count: int) -> None:
        super().__init__(base)
        self._count = count

    def combine(self, values: Floats) -> Doubles:
        """In a sorted column they lie side by side; among equally near ones, the smaller are taken."""
        sites = len(values)
        compare_rows(values, comparisons(sites))
        median = (values[(sites - 1) // 2].astype(np.float64) + values[sites // 2]) / 2
        total = np.zeros(values.shape[1])
        for row in values[: self._count]:
            total += row
        best, reach = total / self._count, _reach(values, median, 0, self._count)
        for first in range(1, sites - self._count + 1):
            total += values[first + self._count - 1].astype(np.float64) - values[first - 1]
            further = _reach(values, median, first, self._count)
            nearer = further < reach
            best[nearer], reach[nearer] = total[nearer] / self._count, further[nearer]
        return best


def _reach(values: Floats, median: Doubles, first: int, count: int) -> Doubles:
    """How far the furthest of `count` sorted values from `first` on is from the median."""
    reach: Doubles = np.maximum(median - values[first], values[first + count - 1] - median)
    return reach


def median_shares(products: Doubles, weights: Doubles) -> Doubles:
    """How much each update has in the geometric median of all, which is a mean of them; `weights` are theirs."""
    given: Doubles = weights / weights.sum()
    shares, own = given, np.diag(products)
    near = _NEAR * float(np.sqrt(np.median(own) or own.max()))  # of the typical length, not of a liar's
    if not near:  # nobody moved
        return given
    for _ in range(_STEPS):
        towards = products @ shares
        apart = np.sqrt(np.maximum(own - 2 * towards + shares @ towards, 0.0))
        next_: Doubles = given / np.maximum(apart, near)
        next_ /= next_.sum()
        moved, shares = (np.abs(next_ - shares) * np.sqrt(own)).max(), next_
        if moved < near:
            break
    return shares


def agreement(products: Doubles) -> Doubles:
    """The median of each update's cosines with the others; 1 with one that did not move, and where there is one."""
    count, own = len(products), np.diag(products)
    lengths = np.sqrt(np.outer(own, own))
    cosines = np.divide(products, lengths, out=np.ones_like(products), where=lengths > 0)
    if count == 1:
        return np.ones(1)
    others = cosines[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    found: Doubles = np.median(others, axis=1)
    return found


def gram(base: Weights, sites: list[Tensors]) -> npt.NDArray[np.float64]:
    """The products of the sites' moves with each other, [sites, sites]."""
    total = np.zeros((len(sites), len(sites)))
    for part in Stacked(base, sites).parts():
        if isinstance(part, Block):
            moves = part.values - part.base(base)
            total += moves @ moves.T
        else:
            fading, own = part.factors - 1, base[part.name][part.rows].reshape(-1).astype(np.float64)
            total += np.outer(fading, fading) * float(own @ own)
    return total


def distances(products: Doubles) -> Doubles:
    """Squared distances, [sites, sites]."""
    own = np.diag(products)
    apart: Doubles = np.maximum(own[:, None] + own[None, :] - 2 * products, 0.0)
    return apart


def scores(apart: Doubles, liars: int) -> Doubles:
    """Krum's score of each site: the sum of its squared distances to its n - f - 2 nearest others, at least one."""
    others = np.sort(apart + np.diag(np.full(len(apart), np.inf)), axis=1)
    nearest = min(max(len(apart) - liars - 2, 1), max(len(apart) - 1, 0))
    summed: Doubles = others[:, :nearest].sum(axis=1)
    return summed


def _sorting(rows: int) -> Iterator[tuple[int, int]]:
    sorted_ = 1  # runs of so many rows are sorted
    while sorted_ < rows:
        distance = sorted_
        while distance:
            for start in range(distance % sorted_, rows - distance, 2 * distance):
                for row in range(start, min(start + distance, rows - distance)):
                    if row // (2 * sorted_) == (row + distance) // (2 * sorted_):
                        yield row, row + distance
            distance //= 2
        sorted_ *= 2
