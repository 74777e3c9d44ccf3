"""A model's weights as they travel: dense arrays by name, and rows where only some rows changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedrel.tensors import averaging, kernels

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
        self._tables: dict[str, _Table] = {}
        self._whole: set[str] = set()  # what any site sent whole
        self._by = _arithmetic()

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights, `weight` times."""
        self.total += weight
        for name, tensor in tensors.items():
            sums = self._sums[name]
            if isinstance(tensor, Rows):
                table = self._tables[name] = self._tables.get(name) or _Table(sums)
                values, rest = tensor.values.reshape(-1, table.sums.shape[1]), weight * tensor.rest
                self._by.add_rows(
                    table.sums, table.meant, table.listed, tensor.index, values, float(weight), rest
                )
                table.rest += rest
            else:
                self._whole.add(name)
                self._by.add(sums.reshape(-1), tensor.reshape(-1), float(weight))

    def result(self) -> dict[str, npt.NDArray[np.float32]]:
        """The mean so far."""
        if not self.total:
            raise NoAnswerError
        return {name: self._mean(name) for name in self._sums}

    def _mean(self, name: str) -> npt.NDArray[np.float32]:
        mean, table = np.empty(self.base[name].shape, np.float32), self._tables.get(name)
        if table is None:
            return np.divide(self._sums[name], self.total, out=mean, casting="same_kind")
        if name in self._whole:
            table.listed[:] = True
        base, flat = (tensor.reshape(table.sums.shape) for tensor in (self.base[name], mean))
        self._by.mean_of_rows(
            table.sums, table.meant, table.listed, base, table.rest, float(self.total), flat
        )
        return mean


class _Table:
    """A table that comes by rows: a row's mean is its sum and, by all who leave it out, its part of `base`."""

    def __init__(self, sums: npt.NDArray[np.float64]) -> None:
        self.sums = sums.reshape(len(sums), -1)
        self.rest = 0.0  # how much of `base` all sites say that they leave
        self.meant = np.zeros(len(sums))  # how much less of it is meant of a row, since sites list it
        self.listed = np.zeros(len(sums), bool)  # by any site


def _arithmetic() -> ModuleType:
    """Kernels where there are any, else numpy."""
    if kernels.available():
        from fedrel.tensors import averaging_kernels

        return averaging_kernels
    return averaging


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
