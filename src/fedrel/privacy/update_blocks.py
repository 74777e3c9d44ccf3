"""Many sites' weights side by side, a block of columns at a time: what rules need that look at all updates at once.

A block has a row for each site. It is small enough for the processor's cache, whatever the model's size, so that
rules need little memory beyond the updates themselves; and those go to a file once they are large (`UpdateStore`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from fedrel.tensors.weights import Doubles, Floats, Rows, Tensors, Weights

BLOCK = 2**19  # numbers of a block: 2 MB
IN_MEMORY = 2**29  # bytes of updates that are kept in memory: 512 MB

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Some columns of one tensor, as all sites have them."""

    name: str
    rows: Ints | None
    """Of a table: which rows. Of any other tensor None: `start` counts its numbers one after another."""
    start: int
    values: Floats  # [sites, n]

    def base(self, base: Weights) -> Floats:
        """The same columns of other weights, [n]."""
        whole = base[self.name]
        if self.rows is None:
            return whole.reshape(-1)[self.start : self.start + self.values.shape[1]]
        return whole[self.rows].reshape(-1)

    def put(self, into: Weights, column: Floats) -> None:
        """Write these columns of other weights."""
        whole = into[self.name]
        if self.rows is None:
            whole.reshape(-1)[self.start : self.start + len(column)] = column
        else:
            whole[self.rows] = column.reshape(len(self.rows), *whole.shape[1:])


@dataclass(frozen=True, slots=True)
class Unlisted:
    """The rows of a table that no site lists: each site's are its own factor times the global ones."""

    name: str
    rows: Ints
    factors: Doubles  # [sites]


class Stacked:
    """Several sites' weights; `base` are those that they started from."""

    def __init__(self, base: Weights, sites: Sequence[Tensors]) -> None:
        self._base, self._sites = base, sites

    def parts(self) -> Iterator[Block | Unlisted]:
        """All columns, in the order of the tensors."""
        for name, base in self._base.items():
            tensors = [site[name] for site in self._sites]
            if any(isinstance(tensor, Rows) for tensor in tensors):
                yield from self._table(name, base, tensors)
            else:
                yield from self._whole(name, base.size, tensors)  # type: ignore[arg-type]

    def _whole(self, name: str, size: int, tensors: Sequence[Floats]) -> Iterator[Block]:
        flat = [tensor.reshape(-1) for tensor in tensors]
        width = max(BLOCK // len(flat), 1)
        for start in range(0, size, width):
            yield Block(name, None, start, np.stack([tensor[start : start + width] for tensor in flat]))

    def _table(self, name: str, base: Floats, tensors: Sequence[Floats | Rows]) -> Iterator[Block | Unlisted]:
        listed = np.zeros(len(base), bool)
        for tensor in tensors:
            listed[tensor.index if isinstance(tensor, Rows) else slice(None)] = True
        rows = np.flatnonzero(listed)
        across = max(base[:1].size, 1)
        height = max(BLOCK // (len(tensors) * across), 1)
        for first in range(0, len(rows), height):
            some = rows[first : first + height]
            values = np.empty((len(tensors), len(some), *base.shape[1:]), np.float32)
            for site, tensor in enumerate(tensors):
                _fill(values[site], some, base, tensor)
            yield Block(name, some, 0, values.reshape(len(tensors), -1))
        if len(rows) < len(base):
            factors = np.array([tensor.rest for tensor in tensors if isinstance(tensor, Rows)])
            yield Unlisted(name, np.flatnonzero(~listed), factors)


def _fill(values: Floats, rows: Ints, base: Floats, tensor: Floats | Rows) -> None:
    """A site's values of some rows of a table: those that it lists, and its factor times the others."""
    if not isinstance(tensor, Rows):
        values[:] = tensor[rows]
        return
    np.multiply(base[rows], tensor.rest, out=values, dtype=np.float64, casting="same_kind")
    first, end = np.searchsorted(tensor.index, (rows[0], rows[-1] + 1))
    values[np.searchsorted(rows, tensor.index[first:end])] = tensor.values[first:end]


class UpdateStore:
    """Keeps updates until all are there: in memory at first, then in a file that has no name."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._left = in_memory
        self._file: IO[bytes] | None = None

    def keep(self, tensors: Tensors) -> Tensors:
        """The same tensors, which may now be in the file."""
        parts = [tensor.values if isinstance(tensor, Rows) else tensor for tensor in tensors.values()]
        self._left -= sum(part.nbytes for part in parts)
        if self._left >= 0:
            return tensors
        return {
            name: Rows(tensor.index, self._filed(tensor.values), tensor.rest)
            if isinstance(tensor, Rows)
            else self._filed(tensor)
            for name, tensor in tensors.items()
        }

    def _filed(self, array: Floats) -> Floats:
        if not array.size:
            return array
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the arrays in it
        start = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        return np.memmap(self._file, np.float32, "r", start, array.shape)
