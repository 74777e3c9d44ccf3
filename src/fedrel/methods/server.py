"""FedAvgM and FedAdam: the coordinator uses the average as a gradient and takes a step of its own.

Reddi et al. 2021, Adaptive Federated Optimization: what the sites moved on average, d = mean_k w_k - w, is a
pseudo-gradient, and any first-order method can use it (Algorithms 1 and 2). Sites do what they do in FedAvg. In
`fedavgm+fedadam` both steps are taken, each with its own rate, as Landro et al. 2020 mix SGD and Adam.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.federation.method import OwnStep, adds_up
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


Floats = npt.NDArray[np.float64]


class ServerStep(FedAvg):
    """FedAvg in which the coordinator takes a step in place of the average; a base class without a name."""

    def server_update(self, fed: Federation, mean: Weights) -> Weights:
        """w += server_step(d), tensor by tensor."""
        mean = super().server_update(fed, mean)
        return {
            name: (weight + self.server_step(fed, name, mean[name].astype(np.float64) - weight)).astype(
                np.float32
            )
            for name, weight in fed.weights.items()
        }

    @adds_up
    def server_step(self, fed: Federation, name: str, change: Floats) -> Floats | float:
        """How far to go, given how far the sites went on average; moments that it needs are in `fed.state`."""
        return 0.0


class FedAvgM(ServerStep):
    """FedAvg with momentum at the coordinator."""

    name: ClassVar[str] = "fedavgm"
    paper: ClassVar[str] = (
        "Hsu, Qi, Brown 2019, "
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
    )

    server_rate: float = Field(1.0, gt=0)
    """η, the coordinator's learning rate."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """β, the share of a round's step that the next one adds to its own; 0, with a rate of 1, is FedAvg."""

    def server_step(self, fed: Federation, name: str, change: Floats) -> Floats | float:
        """v = momentum * v + d; step eta * v."""
        velocity = self.momentum * fed.state.get(f"fedavgm.{name}", 0.0) + change
        fed.state[f"fedavgm.{name}"] = velocity.astype(np.float32)
        return super().server_step(fed, name, change) + self.server_rate * velocity

    def reach(self, own: OwnStep) -> float:
        """All earlier steps of the same length and direction add up to eta / (1 - momentum) of one."""
        return super().reach(own) + self.server_rate * own.length / (1 - self.momentum)


class FedAdam(ServerStep):
    """FedAvg with Adam at the coordinator, without bias correction."""

    name: ClassVar[str] = "fedadam"
    paper: ClassVar[str] = "Reddi et al. 2021, Adaptive Federated Optimization, Algorithm 2"

    server_rate: float = Field(0.01, gt=0)
    """η, the coordinator's learning rate; the paper tunes it for each dataset, mostly to about this."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """β₁, how slowly the mean of d changes."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """β₂, how slowly the mean of d² changes."""
    adaptivity: float = Field(1e-3, gt=0)
    """τ: the smaller it is, the more alike are the steps of all weights."""

    def server_step(self, fed: Federation, name: str, change: Floats) -> Floats | float:
        """m = beta1 m + (1 - beta1) d; v = beta2 v + (1 - beta2) d^2; step eta m / (sqrt(v) + tau)."""
        mean, square = f"fedadam.m.{name}", f"fedadam.v.{name}"
        m = self.beta1 * fed.state.get(mean, 0.0) + (1 - self.beta1) * change
        v = self.beta2 * fed.state.get(square, self.adaptivity**2) + (1 - self.beta2) * change**2
        fed.state |= {mean: m.astype(np.float32), square: v.astype(np.float32)}
        return super().server_step(fed, name, change) + self.server_rate * m / (np.sqrt(v) + self.adaptivity)

    def reach(self, own: OwnStep) -> float:
        """A weight's |m| / sqrt(v) is largest for changes that fade as (beta1 / beta2)^t, by Cauchy and Schwarz."""
        if not self.beta2:  # then a weight whose change is next to nothing still moves by its momentum
            return super().reach(own) + self.server_rate * own.length / self.adaptivity
        fading = self.beta1**2 / self.beta2
        largest = (1 - self.beta1) ** 2 * sum(fading**age for age in range(own.rounds)) / (1 - self.beta2)
        return super().reach(own) + self.server_rate * math.sqrt(largest * own.size)
