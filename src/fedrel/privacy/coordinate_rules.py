"""Rules that combine every coordinate by itself: the median and the trimmed mean (Yin et al. 2018, Byzantine-Robust
Distributed Learning: Towards Optimal Statistical Rates), and the last step of Bulyan.

Every site counts the same: of a sorted column it is not known which site a number is from. Columns are sorted by a
network of comparisons of whole rows, which is the same work for every column: a loop that processors do many
columns of at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from fedrel.privacy.update_blocks import Block, Stacked
from fedrel.tensors import compiling
from fedrel.tensors.weights import Doubles, Floats, NoAnswerError, Tensors, Weights

Pairs = npt.NDArray[np.int32]


class CoordinateRule:
    """The base of these rules: a `Sum` that keeps all sites' weights until the result is asked for."""

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
