"""FedRS: Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.

A site pushes the vectors of classes it has never seen away from everything it reads. A softmax in which their
logits count for less restrains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.heads import Reading
    from fedrel.federation.site import Site


class FedRS(FedAvg):
    """FedAvg with the restricted softmax; `alpha` 1 is FedAvg itself."""

    name: ClassVar[str] = "fedrs"

    alpha: float = Field(0.5, ge=0, le=1)
    """What the logits of classes absent at the site are multiplied by."""

    # The site's half.

    def logits(self, site: Site, reading: Reading) -> Tensor:
        """alpha_c * logit_c, alpha_c = 1 for a class that the site has."""
        import torch

        logits = super().logits(site, reading)
        factors = np.where(site.label_counts > 0, 1.0, self.alpha)
        return logits * torch.from_numpy(factors).to(logits)
