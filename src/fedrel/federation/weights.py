"""A model's weights as they travel: dense arrays by name, and rows where only some rows changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Weights = Mapping[str, npt.NDArray[np.float32]]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor of which a site changed only some rows: those rows, and the factor of all others.

    Training on a few sentences touches a few rows of a word table; weight decay multiplies every other
    row by the same known number, `rest`. So an update costs what the site's words cost, whatever the
    size of the vocabulary.
    """

    index: npt.NDArray[np.int32]  # [m], ascending
    values: npt.NDArray[np.float32]  # [m, d]
    rest: float

    def at(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """The values of any rows, zero for one that is not listed."""
        found = np.zeros((len(rows), *self.values.shape[1:]), np.float32)
        places = np.searchsorted(self.index, rows)
        places[places == len(self.index)] = 0
        listed = self.index[places] == rows if len(self.index) else np.zeros(len(rows), bool)
        found[listed] = self.values[places[listed]]
        return found


class NoAnswerError(Exception):
    """A round from which no site's answer could be used."""


Tensors = Mapping[str, npt.NDArray[np.float32] | Rows]


class Sum(Protocol):
    """Many sites' weights made one model, site by site."""

    def add(self, tensors: Tensors, weight: float) -> None:
        """Take in one site's weights."""

    def result(self) -> Weights:
        """The model; `NoAnswerError` if nothing came in."""


class WeightedMean:
    """The weighted average of sites' weights as a running sum: memory for one model, whatever the sites.

    `base` are the weights the sites started from: what a site's `Rows` leave out is `rest * base`.
    """

    def __init__(self, base: Weights) -> None:
        self.base = base
        self.total = 0.0
        self._sums = {name: np.zeros(tensor.shape) for name, tensor in base.items()}
        # Kept for all sites; only as much of it comes into memory as the largest dense tensor needs.
        self._scratch = np.empty(max((tensor.size for tensor in base.values()), default=0))
        # How much of `base` a row's sum lacks: what all sites say of the rest, less what those say that list it.
        self._rest = dict.fromkeys(base, 0.0)
        self._listed: dict[str, npt.NDArray[np.float64]] = {}

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights, `weight` times."""
        self.total += weight
        for name, tensor in tensors.items():
            if isinstance(tensor, Rows):
                self._sums[name][tensor.index] += self._times(tensor.values, weight)
                self._rest[name] += weight * tensor.rest
                if name not in self._listed:
                    self._listed[name] = np.zeros(len(self.base[name]))
                self._listed[name][tensor.index] += weight * tensor.rest
            else:
                self._sums[name] += self._times(tensor, weight)

    def result(self) -> dict[str, npt.NDArray[np.float32]]:
        """The mean so far; the sums are consumed."""
        if not self.total:
            raise NoAnswerError
        for name, listed in self._listed.items():
            base = self.base[name]
            lacking = (self._rest[name] - listed).reshape(-1, *(1,) * (base.ndim - 1))
            self._sums[name] += np.multiply(base, lacking, out=self._scratch[: base.size].reshape(base.shape))
        return {
            name: np.divide(total, self.total, out=total).astype(np.float32)
            for name, total in self._sums.items()
        }

    def _times(self, tensor: npt.NDArray[np.float32], weight: float) -> npt.NDArray[np.float64]:
        product = self._scratch[: tensor.size].reshape(tensor.shape)
        return np.multiply(tensor, weight, out=product, dtype=np.float64)


def dense(base: Weights, tensors: Tensors) -> dict[str, npt.NDArray[np.float32]]:
    """One site's weights in full; `base` are those it started from."""
    alone = WeightedMean(base)
    alone.add(tensors, 1.0)
    return alone.result()


def moved(start: Weights, tensors: Tensors) -> dict[str, npt.NDArray[np.float32] | Rows]:
    """How far training took a site's weights from `start`; zero in the rows that its text does not have.

    Weight decay acts on every row of a table. It is left out there, so that what a site remembers of its moves
    stays as small as its text.
    """
    return {
        name: Rows(tensor.index, tensor.values - np.float32(tensor.rest) * start[name][tensor.index], 0.0)
        if isinstance(tensor, Rows)
        else tensor - start[name]
        for name, tensor in tensors.items()
    }


def plus(left: Tensors, right: Tensors, factor: float = 1.0) -> dict[str, npt.NDArray[np.float32] | Rows]:
    """`left + factor * right`; a tensor or row that one of them lacks is zero there."""
    total = dict(left)
    for name, tensor in right.items():
        before = total.get(name)
        if isinstance(tensor, Rows):
            if before is None:
                before = Rows(tensor.index[:0], tensor.values[:0], 0.0)
            assert isinstance(before, Rows), f"{name} is rows on one side only"
            index = np.union1d(before.index, tensor.index)
            total[name] = Rows(index, before.at(index) + np.float32(factor) * tensor.at(index), 0.0)
        else:
            assert not isinstance(before, Rows), f"{name} is rows on one side only"
            change = np.float32(factor) * tensor
            total[name] = change if before is None else before + change
    return total
