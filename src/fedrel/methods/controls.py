"""SCAFFOLD's control variates as messages, and how one follows from an update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedrel.federation.messages import LARGEST, Array, Message, Model, ModelTensors, RefusedError, Update
from fedrel.federation.summands import Summand, check_uniform, in_line, moved_by, moves
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import Floats, Rows, Tensors, WeightedMean, Weights, moved, plus

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


STORED = "scaffold"  # at a site: c_k; in the coordinator's state: c


@dataclass(frozen=True, slots=True)
class Control(Message):
    """Down: the coordinator's control variate, c."""

    variate: Annotated[Weights, ModelTensors()]
    """A number for every weight."""


@dataclass(frozen=True, slots=True)
class ControlledUpdate(Update):
    """Up: an update whose tables leave out the rows that only c moved, and how long the site's path was."""

    covered_by_noise = True

    path: Annotated[float, Array("float64", low=1e-9, high=LARGEST)]
    """Steps times learning rate; with weight decay, earlier steps count a little less."""

    def change(self, start: Weights, c: Weights) -> Tensors:
        """The change of c_k that follows from the update."""
        return change(start, self.weights, self.path, c)

    def slopes(self, start: Weights, c: Weights) -> tuple[Floats, Floats]:
        """How far each weight moved, rows that the update leaves out too; and the same divided by the path."""
        drifts = WeightedMean(c)
        drifts.add(self.drift(), 1.0)
        moved = moves(start, self) + in_line(drifts.result())
        return moved, moved / np.float32(self.path)

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


@dataclass(frozen=True, slots=True)
class SummedControlledUpdate(ControlledUpdate):
    """The mean of several sites' updates, in the place of one site's; it never travels."""

    count: float
    slope: Weights
    """The mean of the sites' moves, each divided by its path."""

    @property
    def sites(self) -> float:
        """How many sites it is the mean of."""
        return self.count

    def change(self, start: Weights, c: Weights) -> Tensors:
        """The mean change of their c_k."""
        return plus(plus({}, self.slope, -1.0), c, -1.0)

    def drift(self) -> dict[str, Rows]:
        """Nothing: its weights have all rows."""
        return {}


class SummedControls(FedAvg):
    """Updates with control variates, and their sum; a base class without a name."""

    def summed(self, fed: Federation, mean: Summand, sites: float) -> SummedControlledUpdate:
        """The mean of the sites' moves, and of their moves divided by their paths."""
        check_uniform(fed, self.weighting, self.name)
        mean_move, slope = np.split(mean.numbers, 2)
        weights, c_like = moved_by(fed.weights, mean_move), moved_by(zeros(fed.weights), slope)
        return SummedControlledUpdate(weights, mean.examples, mean.loss, 1.0, sites, c_like)

    def to_sum(self, fed: Federation, answer: Any) -> Floats:
        """Moves, and moves divided by the path."""
        return np.concatenate(answer.slopes(fed.weights, variate(fed)))

    def sum_size(self, fed: Federation) -> int:
        """Both are as many as the model's weights."""
        return 2 * super().sum_size(fed)

    def summand(self, site: Site) -> Summand:
        """What the site adds to a sum of all sites: moves, and moves divided by the path."""
        update = self.train(site)
        assert isinstance(update, ControlledUpdate)
        numbers = np.concatenate(update.slopes(site.received(Model).weights, site.received(Control).variate))
        return Summand(numbers, self.update_weight(update), update.examples, update.loss)


def change(start: Weights, trained: Tensors, path: float, c: Weights) -> Tensors:
    """Option II: the change of c_k, (start - trained) / path - c; zero in rows that an update leaves out."""
    moves = moved(start, trained)
    listed = {
        name: Rows(move.index, c[name][move.index], 0.0) if isinstance(move, Rows) else c[name]
        for name, move in moves.items()
    }
    return plus(plus({}, moves, -1 / path), listed, -1.0)


def variate(fed: Federation) -> Weights:
    """c, zero before the first round."""
    for name, zero in zeros(fed.weights).items():
        fed.state.setdefault(f"{STORED}.{name}", zero)
    return {name: fed.state[f"{STORED}.{name}"] for name in fed.weights}


def zeros(like: Weights) -> Weights:
    """A zero for every weight."""
    return {name: np.zeros_like(tensor) for name, tensor in like.items()}
