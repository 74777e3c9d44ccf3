"""What a method adds to every gradient of a round: a pull to where the site started, and a constant force.

FedProx, FedDyn and SCAFFOLD do this, and all of it is linear in the weights. So where n steps take a weight that
has no gradient can be computed from two numbers, those of `Course`, without visiting the weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedrel.tensors.weights import Tensors, Weights, plus


@dataclass(frozen=True, slots=True)
class Correction:
    """`pull * (weight - start) + own + common`, added to the gradient of a weight in each step of a round.

    `own` is a force that only the site knows; of word tables it has some rows, and is zero in the others. `common`
    is one that the coordinator knows too, so that an update need not list the rows on which nothing else acted. The
    corrections of composed methods are added up.
    """

    pull: float = 0.0
    own: Tensors = field(default_factory=dict)
    common: Weights = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to add."""
        return bool(self.pull or self.own or self.common)

    def __add__(self, other: Correction) -> Correction:
        common = dict(self.common)
        for name, force in other.common.items():
            common[name] = common[name] + force if name in common else force
        return Correction(self.pull + other.pull, plus(self.own, other.own), common)


@dataclass(slots=True)
class Course:
    """Where steps of SGD move a weight that has no gradient: to `rest * start + drift * force`."""

    rest: float = 1.0
    drift: float = 0.0

    def step(self, rate: float, decay: float, pull: float) -> None:
        """One step, `w -= rate * (decay * w + pull * (w - start) + force)`."""
        # Written so that without decay `rest` stays 1 and without pull it is (1 - rate * decay)^n, to the bit.
        self.rest = self.rest * (1 - rate * decay) + rate * pull * (1 - self.rest)
        self.drift = self.drift * (1 - rate * (decay + pull)) - rate
