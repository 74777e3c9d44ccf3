"""What frozen layers make of sentences, kept across epochs and rounds: it never changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor


class States:
    """Tensors by what they were computed from, within a number of bytes; those not used for longest go first."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, make: Callable[[], Tensor]) -> Tensor:
        """What is kept under a key; made where nothing is."""
        state = self._kept.pop(key, None)
        if state is None:
            state = make()
            self.bytes += state.nbytes
        self._kept[key] = state
        while self.bytes > self.limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.nbytes
        return state
