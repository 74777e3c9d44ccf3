"""What a site's training minimises, in the parts that methods override.

FedAvg minimises the cross-entropy of a bag head. FedRS and FedLC change its logits, FedCMC adds a second
cross-entropy, FedProx, SCAFFOLD and FedDyn correct its gradients. What is described so is trained by kernels where
the extractor has them; a method with another loss overrides `loss`, and is trained through the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedrel.extractors.objective import Calibration, Correction, FixedClassifier, Objective
from fedrel.federation.method import Method, adds_up

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.federation.site import Site


class LocalObjective(Method):
    """The objective of local training; by default the cross-entropy of the training head."""

    train_head: ClassVar[str] = "none"
    """The bag head that sites train with."""

    def objective(self, site: Site) -> Objective:
        """All of it: the training head and the three functions below. Kernels read it from here."""
        return Objective(
            self.train_head, self.calibration(site), self.fixed_classifier(site), self.correction(site)
        )

    def calibration(self, site: Site) -> Calibration:
        """How logits are scaled and shifted in training, class by class; not at all by default."""
        return Calibration()

    def fixed_classifier(self, site: Site) -> FixedClassifier | None:
        """Class vectors whose cross-entropy trains the encoder too; none by default."""
        return None

    @adds_up
    def correction(self, site: Site) -> Correction:
        """What the optimiser adds to every gradient, for terms that hold all weights; nothing by default.

        A term of the loss would visit every row of the word table in every step; the optimiser applies the same
        gradient without doing so. The loss that a site reports is without it.
        """
        return Correction()

    @adds_up
    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """The loss of a batch as the bag head reads it. A method that overrides it is trained through the graph."""
        logits, fixed = self.calibration(site).of(reading.logits), self.fixed_classifier(site)
        loss = site.extractor.criterion(logits, reading.labels)
        return loss if fixed is None else loss + fixed.loss(reading.entering, reading.labels)

    def kernel_head(self) -> str | None:
        """The training head, unless the method has a loss of its own."""
        return self.train_head if type(self).loss is LocalObjective.loss else None
