"""Centralised training: all text in one place, the baseline that federated methods are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.site import Site


class Centralised(FedAvg):
    """One site holds all text; `centralised+one` and the like choose another bag head."""

    name: ClassVar[str] = "centralised"
    paper: ClassVar[str] = "the baseline of all papers: no federation"
    pools_data: ClassVar[bool] = True
    several_sites: ClassVar[bool] = False

    share: float = Field(1.0, gt=0, le=1)
    """The share of the bags that a round trains on, drawn anew each round. With the sites' fraction C, a round
    costs as much as theirs."""

    def examples(self, site: Site) -> Bags:
        """All bags, or a random share of them."""
        bags = super().examples(site)
        return bags if self.share == 1 else site.sample(bags, max(round(self.share * len(bags)), 1))
