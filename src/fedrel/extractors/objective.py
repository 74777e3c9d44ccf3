"""What a site's training minimises, as data: the graph and the kernels read the same description.

    cross-entropy(scale * logits + shift) + weight * cross-entropy(fixed class vectors), its gradients corrected

A bag head makes the logits. FedRS and FedLC change them class by class, FedCMC has the second cross-entropy, and
FedProx, SCAFFOLD and FedDyn correct the gradients. A method with a loss that cannot be written so overrides `loss`.

A correction is linear in the weights. So where n steps take a weight that has no gradient can be computed from two
numbers, those of `Course`, without visiting the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.tensors.weights import Tensors, Weights, plus

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Calibration:
    """`scale * logit + shift` in place of every logit in training, class by class; None changes nothing.

    A class whose shift is minus infinity leaves the softmax.
    """

    scale: npt.NDArray[np.float64] | None = None  # [R]
    shift: npt.NDArray[np.float64] | None = None  # [R]

    def __bool__(self) -> bool:
        """Whether any logit changes."""
        return self.scale is not None or self.shift is not None

    def of(self, logits: Tensor) -> Tensor:
        """The changed logits, [n, R]."""
        import torch

        if self.scale is not None:
            logits = logits * torch.from_numpy(self.scale).to(logits)
        if self.shift is not None:
            logits = logits + torch.from_numpy(self.shift).to(logits)
        return logits


@dataclass(frozen=True, slots=True)
class FixedClassifier:
    """Class vectors that are not trained, and how much the cross-entropy of what they read counts.

    They read what the classifier reads, after dropout and without a bias; only the encoder learns from it.
    """

    vectors: Floats  # [R, d]
    weight: float

    def loss(self, entering: Tensor, labels: Tensor) -> Tensor:
        """Its cross-entropy, times the weight."""
        import torch
        from torch.nn.functional import cross_entropy

        vectors = torch.from_numpy(self.vectors).to(entering)
        return self.weight * cross_entropy(entering @ vectors.T, labels)


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


@dataclass(frozen=True, slots=True)
class Objective:
    """All of it."""

    head: str = "none"
    calibration: Calibration = field(default_factory=Calibration)
    fixed: FixedClassifier | None = None
    correction: Correction = field(default_factory=Correction)

    @property
    def is_plain(self) -> bool:
        """Whether there is only the head's cross-entropy, which is the same at all sites."""
        return not (self.calibration or self.fixed or self.correction)


PLAIN = Objective()
"""The cross-entropy of every sentence, and nothing else."""


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


@dataclass(frozen=True)
class DPSteps:
    """The steps of DP-SGD that one site takes in a round (Abadi et al. 2016, Algorithm 1)."""

    batches: Sequence[npt.NDArray[np.int64]]
    """The examples of each step, as numbers of bags; a step may have none."""
    expected: float
    """How many examples a step has on average."""
    clip: float
    """The largest norm of an example's gradient."""
    noise: float
    """The noise multiplier: the noise's standard deviation, divided by `clip`."""
    draw: Callable[[int], Floats]
    """So many standard normal numbers."""
