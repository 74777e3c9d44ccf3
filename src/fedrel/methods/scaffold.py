"""SCAFFOLD: Karimireddy et al. 2020, Stochastic Controlled Averaging for Federated Learning, with option II.

Sites drift apart because their gradients differ. Each keeps c_k, its mean gradient of the last time it trained,
the coordinator keeps c, the mean of all c_k, and a site's steps go down g + c - c_k (Algorithm 1).

The change of c_k follows from what the coordinator has already: (w_global - w_k) / (steps * lr) - c, by option II.
So a site uploads its weights and one number, `path` = steps * lr, half of what the paper's algorithm box sends;
and it cannot send a control variate that does not belong to its weights.

Two things follow from weight decay, which the paper does not have. It makes the steps of a round count a little
less, the earlier they are, and `path` counts them so. And of word tables, where it acts on all rows, it does not
count as a gradient: c_k is then zero but for the words of the site's own text, and so small on its disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedrel.errors import UserError
from fedrel.extractors.correction import Correction
from fedrel.federation.messages import LARGEST, Array, Message, Model, ModelTensors, RefusedError, Update
from fedrel.federation.method import at_site
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import Rows, Tensors, WeightedMean, Weights, moved, plus

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


KEPT = "scaffold"  # in a site's memory: c_k; in the coordinator's state: c
CHANGES, DRIFTS = "scaffold.changes", "scaffold.drifts"  # what the coordinator gathers in a round


@dataclass(frozen=True, slots=True)
class Control(Message):
    """Down: the coordinator's control variate, c."""

    variate: Annotated[Weights, ModelTensors()]


@dataclass(frozen=True, slots=True)
class ControlledUpdate(Update):
    """Up: an update whose tables leave out rows on which c alone acted, and the length of the path it took."""

    path: Annotated[float, Array("float64", low=1e-9, high=LARGEST)]


class Scaffold(FedAvg):
    """FedAvg with control variates against the drift of sites."""

    name: ClassVar[str] = "scaffold"
    carries: ClassVar[tuple[type[Message], ...]] = (Control,)

    global_rate: float = Field(1.0, gt=0)
    """How far the global weights go towards the sites' mean: the paper's global step size."""

    # The coordinator's half.

    def prepare(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Send c along."""
        return [*super().prepare(fed), Control(variate(fed))]

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """What follows for c_k must be possible, too."""
        super().check(fed, site, answer)
        if isinstance(answer, ControlledUpdate):
            for name, move in moved(fed.weights, answer.weights).items():
                steps = move.values if isinstance(move, Rows) else move
                if steps.size and np.abs(steps).max() > LARGEST * answer.path:
                    raise RefusedError(f"{name} moved too far on a path of {answer.path:g}")

    def weight(self, update: Update) -> float:
        """All the same, as in the paper, unless `weighting` is given."""
        return super().weight(update) if "weighting" in self.model_fields_set else 1.0

    def learn(self, fed: Federation, site: int, update: Update) -> None:
        """Gather the changes of c_k, and what c alone did to the rows that the update leaves out."""
        super().learn(fed, site, update)
        assert isinstance(update, ControlledUpdate)
        c = variate(fed)
        if CHANGES not in fed.memo:
            fed.memo |= {CHANGES: WeightedMean(c), DRIFTS: WeightedMean(c)}
        fed.memo[CHANGES].add(change(fed.weights, update.weights, update.path, c), 1.0)
        left_out = {
            name: Rows(rows.index, np.zeros_like(rows.values), -update.path)  # -path * c, zero in its rows
            for name, rows in update.weights.items()
            if isinstance(rows, Rows)
        }
        fed.memo[DRIFTS].add(left_out, self.weight(update))

    def conclude(self, fed: Federation, mean: Weights) -> Weights:
        """w += global_rate * mean_k (w_k - w); c += 1/K sum_k (c_k's change). K counts all sites that hold text."""
        if DRIFTS not in fed.memo:
            raise UserError(f"{self.name}: no site sends its weights, so there is nothing to control")
        drifts = fed.memo[DRIFTS].result()
        mean = super().conclude(fed, {name: tensor + drifts[name] for name, tensor in mean.items()})
        changes: WeightedMean = fed.memo[CHANGES]
        share = np.float32(changes.total / np.count_nonzero(fed.sizes))
        c, moves = variate(fed), changes.result()
        fed.state |= {f"{KEPT}.{name}": c[name] + share * moves[name] for name in c}
        if self.global_rate == 1:
            return mean
        rate = np.float32(self.global_rate)
        return {name: (1 - rate) * tensor + rate * mean[name] for name, tensor in fed.weights.items()}

    # The site's half.

    def correction(self, site: Site) -> Correction:
        """c - c_k, on every gradient."""
        site.memo[KEPT] = site.recall_model(KEPT)
        own = plus({}, site.memo[KEPT], -1.0)
        return super().correction(site) + Correction(own=own, common=site.received(Control).variate)

    @at_site(takes=(Model, Control), gives=ControlledUpdate)
    def train(self, site: Site) -> ControlledUpdate:
        """Local training, and the new c_k."""
        update = super().train(site)
        start, c = site.received(Model).weights, site.received(Control).variate
        changed = change(start, update.weights, site.path, c)
        site.remember_model(KEPT, plus(site.memo[KEPT], changed))
        return ControlledUpdate(update.weights, update.examples, update.loss, site.path)


def variate(fed: Federation) -> Weights:
    """c, zero before the first round."""
    for name, weight in fed.weights.items():
        if f"{KEPT}.{name}" not in fed.state:
            fed.state[f"{KEPT}.{name}"] = np.zeros_like(weight)
    return {name: fed.state[f"{KEPT}.{name}"] for name in fed.weights}


def change(start: Weights, trained: Tensors, path: float, c: Weights) -> Tensors:
    """Option II: the change of c_k, (start - trained) / path - c; zero in rows that an update leaves out."""
    moves = moved(start, trained)
    listed = {
        name: Rows(move.index, c[name][move.index], 0.0) if isinstance(move, Rows) else c[name]
        for name, move in moves.items()
    }
    return plus(plus({}, moves, -1 / path), listed, -1.0)
