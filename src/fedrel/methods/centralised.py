"""Centralised training: all text in one place, the yardstick that federated methods are measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.site import Site


class Centralised(FedAvg):
    """One site holds everything; `centralised+one` and the like choose another bag head."""

    name: ClassVar[str] = "centralised"
    pools_data: ClassVar[bool] = True

    share: float = Field(1.0, gt=0, le=1)
    """Of the bags, drawn anew each round: with the sites' fraction C, a round costs what theirs does."""

    def examples(self, site: Site) -> Bags:
        """All bags, or a random share of them."""
        bags = super().examples(site)
        return bags if self.share == 1 else site.sample(bags, max(round(self.share * len(bags)), 1))
