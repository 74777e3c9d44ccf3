"""FedRS: Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.

Training at a site pushes the vectors of classes that the site does not have away from everything it reads. In a
softmax in which the logits of these classes count for less, it pushes them less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedrel.extractors.objective import Calibration
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.site import Site


class FedRS(FedAvg):
    """FedAvg with a softmax that is restricted for classes absent at the site."""

    name: ClassVar[str] = "fedrs"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data"
    )
    beyond_examples: ClassVar[str] = "fedrs's exact counts of a site's relations are in every sentence's loss"

    alpha: float = Field(0.5, ge=0, le=1)
    """The factor of the logits of classes absent at the site; 1 is FedAvg."""

    # The site's half.

    def calibration(self, site: Site) -> Calibration:
        """alpha_c * logit_c, alpha_c = 1 for a class that the site has."""
        if self.alpha == 1:
            return Calibration()
        return Calibration(scale=np.where(site.label_counts > 0, 1.0, self.alpha))

    @classmethod
    def unsuited(cls) -> str | None:
        """A class that a site lacks is in danger only where its model is averaged with others."""
        if not cls.several_sites:
            return "fedrs protects classes that a site lacks in an average, and here is nothing to average"
        return super().unsuited()
