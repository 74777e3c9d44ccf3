"""How far sites moved the weights, and which of them stand out: by norms alone, before anything is averaged.

Steps of local training are about equally long at all sites. So an update's norm grows with the number of examples,
but not faster. An update that is many times as long as the round's median, and as its number of examples can
explain, is not what honest training gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedrel.tensors.weights import Floats, Rows, Tensors, Weights

STANDS_OUT = 5.0  # times as long as the round's other updates explain: named when something goes wrong
DIVERGES = 10.0  # times as far as they explain: a mean that moves so far is not used
_AT_ONCE = 8192  # numbers of a block: it stays in the processor's cache


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
