"""What a site's training minimises, as data: the graph and the kernels read the same description.

    cross-entropy(scale * logits + shift) + weight * cross-entropy(fixed class vectors), its gradients corrected

A bag head makes the logits. FedRS and FedLC change them class by class, FedCMC has the second cross-entropy, and
FedProx, SCAFFOLD and FedDyn correct the gradients. A method with a loss that cannot be written so overrides `loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.extractors.correction import Correction

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
