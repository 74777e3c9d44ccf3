"""FedLC: Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration.

The rarer a class is at a site, the more its logit is lowered in training. So the model must tell the class's
sentences from those of frequent classes by a wider margin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedrel.extractors.objective import Calibration
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.site import Site


class FedLC(FedAvg):
    """FedAvg with logits that are lowered for classes that are rare at the site."""

    name: ClassVar[str] = "fedlc"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration"
    )
    beyond_examples: ClassVar[str] = "fedlc's exact counts of a site's relations are in every sentence's loss"

    tau: float = Field(1.0, ge=0)
    """τ, how much the logits are lowered; 0 is FedAvg."""

    # The site's half.

    def calibration(self, site: Site) -> Calibration:
        """logit_c - tau * n_c^(-1/4), n_c the site's sentences of class c.

        The margin grows without bound as n_c goes to 0: a class absent at the site leaves the softmax.
        """
        if not self.tau:
            return Calibration()
        with np.errstate(divide="ignore"):
            margins = self.tau * site.label_counts.astype(np.float64) ** -0.25
        return Calibration(shift=-margins)
