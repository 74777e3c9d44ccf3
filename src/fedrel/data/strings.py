"""Many strings in two memory-mapped arrays: a corpus opens without decoding its vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Strings(Sequence[str]):
    """String `i` is the UTF-8 bytes `blob[starts[i]:starts[i + 1]]`, decoded when asked for."""

    blob: NDArray[np.uint8]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.blob[self.starts[index] : self.starts[index + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        blob, starts = self.blob.tobytes(), self.starts.tolist()
        return (blob[start:end].decode() for start, end in pairwise(starts))
