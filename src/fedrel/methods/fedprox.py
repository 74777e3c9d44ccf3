"""FedProx: Li et al. 2020, Federated Optimization in Heterogeneous Networks.

A site's loss has a term that keeps its weights near the global ones (Eq. 2): h(w) = F(w) + mu/2 ||w -
w_global||^2. Its gradient, mu * (w - w_global), goes into the optimiser, so the loss that a site reports is F
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrel.extractors.objective import Correction
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.site import Site


class FedProx(FedAvg):
    """FedAvg with a proximal term that keeps sites near the global weights."""

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al. 2020, Federated Optimization in Heterogeneous Networks"

    mu: float = Field(0.01, ge=0)
    """μ, how strongly sites are held back; 0 is FedAvg. The paper chooses it for each dataset from 0.001 to 1;
    0.01 is its value for its one task of classifying sentences."""

    # The site's half.

    def correction(self, site: Site) -> Correction:
        """The gradient of the proximal term."""
        return super().correction(site) + Correction(pull=self.mu)
