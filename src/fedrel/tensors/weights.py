"""A model's weights as they travel: dense arrays by name, and rows where only some rows changed.

Sums and means are computed in float64 and rounded to float32 at the end. Where the weights of sites are numbers of
examples, products are exact in float64. So the compiled loops, which may round a product and a sum at once, give
the same bits as numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedrel.tensors import compiling

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Weights = Mapping[str, Floats]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table of which a site changed only some rows: those rows, and the factor of all others.

    Training on a few sentences changes a few rows of a word table; weight decay multiplies every other row by the
    same known number, `rest`. So an update is as large as the site's words need, whatever the vocabulary's size.
    """

    index: npt.NDArray[np.int32]  # [m], ascending
    values: Floats  # [m, d]
    rest: float

    def at(self, rows: npt.NDArray[np.integer]) -> Floats:
        """The values of any rows, zero for one that is not listed."""
        found = np.zeros((len(rows), *self.values.shape[1:]), np.float32)
        places = np.searchsorted(self.index, rows)
        places[places == len(self.index)] = 0
        listed = self.index[places] == rows if len(self.index) else np.zeros(len(rows), bool)
        found[listed] = self.values[places[listed]]
        return found


class NoAnswerError(Exception):
    """No site's answer of a round could be used."""


Tensors = Mapping[str, Floats | Rows]


class Sum(Protocol):
    """Many sites' weights combined to one model, one site after another."""

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights."""

    def result(self) -> Weights:
        """The model; `NoAnswerError` if nothing was added."""


class WeightedMean:
    """The weighted average of sites' weights as a running sum: it needs memory for one model, whatever the sites.

    `base` are the weights that the sites started from: a row that a site's `Rows` leave out is `rest * base`.
    """

    def __init__(self, base: Weights) -> None:
        self.base = base
        self.total = 0.0
        self._sums: dict[str, Doubles] = {}  # of tensors that sites sent whole
        self._tables: dict[str, _Table] = {}  # of those that any site sent by rows
        self._loops = _loops()

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights, `weight` times."""
        self.total += weight
        for name, tensor in tensors.items():
            if isinstance(tensor, Rows):
                self._add_rows(name, tensor, weight)
            else:
                sums = self._whole_sums(name).reshape(-1)
                self._loops.add(sums, compiling.read_only(tensor.reshape(-1)), float(weight))

    def _add_rows(self, name: str, rows: Rows, weight: float) -> None:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table(self.base[name].shape, self._sums.pop(name, None))
        table.make_room(len(rows.index))
        values, rest = rows.values.reshape(-1, table.sums.shape[1]), weight * rows.rest
        table.listed = self._loops.add_rows(
            table.sums, table.offset, table.place, table.listed, compiling.read_only(rows.index),
            compiling.read_only(values), float(weight), rest,
        )  # fmt: skip
        table.rest += rest

    def _whole_sums(self, name: str) -> Doubles:
        """The sums of all of a tensor, to add a whole one to."""
        if name in self._tables:
            return self._tables[name].of_all_rows()
        if name not in self._sums:
            self._sums[name] = np.zeros(self.base[name].shape)
        return self._sums[name]

    def result(self) -> dict[str, Floats]:
        """The mean so far."""
        if not self.total:
            raise NoAnswerError
        return {name: self._mean(name) for name in self.base}

    def _mean(self, name: str) -> Floats:
        mean, table = np.empty(self.base[name].shape, np.float32), self._tables.get(name)
        if table is None:
            return np.divide(self._whole_sums(name), self.total, out=mean, casting="same_kind")
        base, flat = (tensor.reshape(len(tensor), -1) for tensor in (self.base[name], mean))
        self._loops.mean_of_rows(
            table.sums, table.offset, table.place, compiling.read_only(base), table.rest, float(self.total), flat
        )  # fmt: skip
        return mean


def dense(base: Weights, tensors: Tensors) -> dict[str, Floats]:
    """One site's weights in full; `base` are those that it started from."""
    alone = WeightedMean(base)
    alone.add(tensors, 1.0)
    return alone.result()


def moved(start: Weights, tensors: Tensors) -> dict[str, Floats | Rows]:
    """How far training moved a site's weights from `start`; zero in the rows whose words its text does not have.

    Weight decay moves every row of a table, too. That is left out, so that what a site stores of its moves is as
    small as its text.
    """
    return {
        name: Rows(tensor.index, tensor.values - np.float32(tensor.rest) * start[name][tensor.index], 0.0)
        if isinstance(tensor, Rows)
        else tensor - start[name]
        for name, tensor in tensors.items()
    }


def plus(left: Tensors, right: Tensors, factor: float = 1.0) -> dict[str, Floats | Rows]:
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


def advanced(base: Floats | np.float32, factor: float, move: Floats) -> Floats:
    """`base + factor * move`, written over `move`: of a large model, memory takes longer than arithmetic."""
    np.multiply(move, np.float32(factor), out=move)
    return np.add(base, move, out=move)


class _Table:
    """The running sum of a table that arrives by rows: of the rows that any site lists, as they come.

    The mean of a row is its sum plus its part of `base`, which all sites that do not list the row add.
    `sums` are those so far, if sites sent the whole table before.
    """

    def __init__(self, shape: tuple[int, ...], sums: Doubles | None) -> None:
        rows, width = shape[0], math.prod(shape[1:])
        self.rest = 0.0  # the factor of `base` in the sum of a row that no site lists
        self.place = np.full(rows, -1, np.int32)  # by row, where its sum is; -1: no site lists it
        self.listed = 0  # how many rows have a place
        self.sums = np.zeros((0, width))
        self.offset = np.zeros(0)  # by place, what the sites that list the row take off that factor
        if sums is not None:
            self.of_all_rows()[:] = sums.reshape(-1, width)

    def make_room(self, rows: int) -> None:
        """Make places for so many more rows, at most for all."""
        most, there = min(self.listed + rows, len(self.place)), len(self.offset)
        if most > there:
            more = min(max(most, 2 * there), len(self.place)) - there
            self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]))])
            self.offset = np.concatenate([self.offset, np.zeros(more)])

    def of_all_rows(self) -> Doubles:
        """The sums of all rows, in their order."""
        if self.listed < len(self.place):
            self.make_room(len(self.place))
            self.place[self.place < 0] = np.arange(self.listed, len(self.place))
            self.sums, self.offset = self.sums[self.place], self.offset[self.place]
            self.place, self.listed = np.arange(len(self.place), dtype=np.int32), len(self.place)
        return self.sums


class _NumpyLoops:
    """The loops of a running mean in numpy; `fedrel.tensors.array_kernels` has them compiled."""

    @staticmethod
    def add(total: Doubles, numbers: Floats, weight: float) -> None:
        """total += weight * numbers, both [n]."""
        total += np.multiply(numbers, weight, dtype=np.float64)

    @staticmethod
    def add_rows(
        total: Doubles, offset: Doubles, place: npt.NDArray[np.int32], listed: int, index: npt.NDArray[np.int32],
        values: Floats, weight: float, rest: float,
    ) -> int:  # fmt: skip
        """total += weight * values and offset -= rest where the rows `index` have their places.

        Rows that have none get the next ones; returns how many have one now.
        """
        new = index[place[index] < 0]
        place[new] = np.arange(listed, listed + len(new))
        at = place[index]
        total[at] += np.multiply(values, weight, dtype=np.float64)
        offset[at] -= rest
        return listed + len(new)

    @staticmethod
    def mean_of_rows(
        total: Doubles, offset: Doubles, place: npt.NDArray[np.int32], base: Floats, rest: float, weight: float,
        mean: Floats,
    ) -> None:  # fmt: skip
        """mean = (total + (rest + offset) * base) / weight, [n, d]; rest / weight * base without a place."""
        np.multiply(base, rest / weight, out=mean, dtype=np.float64, casting="same_kind")
        rows = np.flatnonzero(place >= 0)
        at = place[rows]
        mean[rows] = (total[at] + (rest + offset[at])[:, None] * base[rows]) / weight


def _loops() -> ModuleType | type[_NumpyLoops]:
    """Compiled loops where numba is installed, else numpy."""
    if compiling.has_numba():
        from fedrel.tensors import array_kernels

        return array_kernels
    return _NumpyLoops
