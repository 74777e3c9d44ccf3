"""SCAFFOLD's control variates as messages, and how one follows from an update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrel.federation.messages import LARGEST, Array, Message, ModelTensors, RefusedError, Update
from fedrel.tensors.weights import Rows, Tensors, Weights, moved, plus


@dataclass(frozen=True, slots=True)
class Control(Message):
    """Down: the coordinator's control variate, c."""

    variate: Annotated[Weights, ModelTensors()]
    """A number for every weight."""


@dataclass(frozen=True, slots=True)
class ControlledUpdate(Update):
    """Up: an update whose tables leave out the rows that only c moved, and how long the site's path was."""

    path: Annotated[float, Array("float64", low=1e-9, high=LARGEST)]
    """Steps times learning rate; with weight decay, earlier steps count a little less."""

    def check_path(self, start: Weights) -> None:
        """Refuse a path so short that the control variate of the update would be too large to use."""
        for name, move in moved(start, self.weights).items():
            steps = move.values if isinstance(move, Rows) else move
            if steps.size and np.abs(steps).max() > LARGEST * self.path:
                raise RefusedError(f"{name} moved too far on a path of {self.path:g}")

    def drift(self) -> dict[str, Rows]:
        """What c did to the rows that the update leaves out, as a factor of c: -path there, 0 in its own rows."""
        return {
            name: Rows(rows.index, np.zeros_like(rows.values), -self.path)
            for name, rows in self.weights.items()
            if isinstance(rows, Rows)
        }


def change(start: Weights, trained: Tensors, path: float, c: Weights) -> Tensors:
    """Option II: the change of c_k, (start - trained) / path - c; zero in rows that an update leaves out."""
    moves = moved(start, trained)
    listed = {
        name: Rows(move.index, c[name][move.index], 0.0) if isinstance(move, Rows) else c[name]
        for name, move in moves.items()
    }
    return plus(plus({}, moves, -1 / path), listed, -1.0)
