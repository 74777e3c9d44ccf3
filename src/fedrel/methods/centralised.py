"""Centralised training: all text in one place, the yardstick that federated methods are measured against."""

from __future__ import annotations

from typing import ClassVar

from fedrel.methods.fedavg import FedAvg


class Centralised(FedAvg):
    """One site holds everything; `centralised+one` and the like choose another bag head."""

    name: ClassVar[str] = "centralised"
    pools_data: ClassVar[bool] = True
