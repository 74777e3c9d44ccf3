"""A model's weights as they travel: dense arrays by name, and rows where only some rows changed.

Sums and means are computed in float64 and rounded to float32 at the end. Where the weights of sites are numbers of
examples, products are exact in float64. So the compiled loops, which may round a product and a sum at once, give
the same bits as numpy.
"""

from __future__ import annotations

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
        self._sums = {name: np.zeros(tensor.shape) for name, tensor in base.items()}
        self._tables: dict[str, _Table] = {}
        self._whole: set[str] = set()  # the names of tensors that any site sent whole
        self._loops = _loops()

    def add(self, tensors: Tensors, weight: float) -> None:
        """Add one site's weights, `weight` times."""
        self.total += weight
        for name, tensor in tensors.items():
            sums = self._sums[name]
            if isinstance(tensor, Rows):
                table = self._tables[name] = self._tables.get(name) or _Table(sums)
                values, rest = tensor.values.reshape(-1, table.sums.shape[1]), weight * tensor.rest
                index, values = compiling.read_only(tensor.index), compiling.read_only(values)
                self._loops.add_rows(
                    table.sums, table.offset, table.listed, index, values, float(weight), rest
                )
                table.rest += rest
            else:
                self._whole.add(name)
                self._loops.add(sums.reshape(-1), compiling.read_only(tensor.reshape(-1)), float(weight))

    def result(self) -> dict[str, Floats]:
        """The mean so far."""
        if not self.total:
            raise NoAnswerError
        return {name: self._mean(name) for name in self._sums}

    def _mean(self, name: str) -> Floats:
        mean, table = np.empty(self.base[name].shape, np.float32), self._tables.get(name)
        if table is None:
            return np.divide(self._sums[name], self.total, out=mean, casting="same_kind")
        if name in self._whole:
            table.listed[:] = True
        base, flat = (tensor.reshape(table.sums.shape) for tensor in (self.base[name], mean))
        self._loops.mean_of_rows(
            table.sums,
            table.offset,
            table.listed,
            compiling.read_only(base),
            table.rest,
            float(self.total),
            flat,
        )
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
    """The running sum of a table that arrives by rows.

    The mean of a row is its sum plus its part of `base`, which all sites that do not list the row add.
    """

    def __init__(self, sums: Doubles) -> None:
        self.sums = sums.reshape(len(sums), -1)
        self.rest = 0.0  # the factor of `base` in the sum of a row that no site lists
        self.offset = np.zeros(len(sums))  # by row, what the sites that list it take off that factor
        self.listed = np.zeros(len(sums), bool)  # rows that any site lists


class _NumpyLoops:
    """The loops of a running mean in numpy; `fedrel.tensors.array_kernels` has them compiled."""

    @staticmethod
    def add(total: Doubles, numbers: Floats, weight: float) -> None:
        """total += weight * numbers, both [n]."""
        total += np.multiply(numbers, weight, dtype=np.float64)

    @staticmethod
    def add_rows(
        total: Doubles,
        offset: Doubles,
        listed: npt.NDArray[np.bool_],
        index: npt.NDArray[np.int32],
        values: Floats,
        weight: float,
        rest: float,
    ) -> None:
        """total[index] += weight * values, rows of [n, d]; offset[index] -= rest; listed[index] = True."""
        total[index] += np.multiply(values, weight, dtype=np.float64)
        offset[index] -= rest
        listed[index] = True

    @staticmethod
    def mean_of_rows(
        total: Doubles,
        offset: Doubles,
        listed: npt.NDArray[np.bool_],
        base: Floats,
        rest: float,
        weight: float,
        mean: Floats,
    ) -> None:
        """mean = (total + (rest + offset) * base) / weight, [n, d]; rest / weight * base in rows not listed."""
        np.multiply(base, rest / weight, out=mean, dtype=np.float64, casting="same_kind")
        rows = np.flatnonzero(listed)
        mean[rows] = (total[rows] + (rest + offset[rows])[:, None] * base[rows]) / weight


def _loops() -> ModuleType | type[_NumpyLoops]:
    """Compiled loops where numba is installed, else numpy."""
    if compiling.has_numba():
        from fedrel.tensors import array_kernels

        return array_kernels
    return _NumpyLoops
