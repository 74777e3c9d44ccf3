"""FedAvgM and FedAdam: the coordinator takes the average for a step, and goes further in its own way.

Reddi et al. 2021, Adaptive Federated Optimization: what the sites moved on average, d = mean_k w_k - w, is a
pseudo-gradient, and any first-order method can use it (Algorithms 1 and 2). Sites do what they do in FedAvg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


Floats = npt.NDArray[np.float64]


class ServerStep(FedAvg):
    """FedAvg with a step of the coordinator's in the average's place; nameless, to build on."""

    def conclude(self, fed: Federation, mean: Weights) -> Weights:
        """w += step(d), weight by weight; moments that a step keeps go into the next round."""
        mean = super().conclude(fed, mean)
        return {
            name: (weight + self.step(fed, name, mean[name].astype(np.float64) - weight)).astype(np.float32)
            for name, weight in fed.weights.items()
        }

    def step(self, fed: Federation, name: str, change: Floats) -> Floats:
        """How far to go, given how far the sites went on average."""
        raise TypeError(f"{type(self).__name__} does not say what a step is")


class FedAvgM(ServerStep):
    """Hsu et al. 2019: momentum at the coordinator. With momentum 0 and server_rate 1 it is FedAvg."""

    name: ClassVar[str] = "fedavgm"

    server_rate: float = Field(1.0, gt=0)
    """The coordinator's learning rate, eta."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """How much of a round's step the next one takes over."""

    def step(self, fed: Federation, name: str, change: Floats) -> Floats:
        """v = momentum * v + d; step eta * v."""
        velocity = self.momentum * fed.state.get(f"fedavgm.{name}", 0.0) + change
        fed.state[f"fedavgm.{name}"] = velocity.astype(np.float32)
        return self.server_rate * velocity


class FedAdam(ServerStep):
    """Reddi et al. 2021, Algorithm 2: Adam at the coordinator, without bias correction."""

    name: ClassVar[str] = "fedadam"

    server_rate: float = Field(0.01, gt=0)
    """The coordinator's learning rate, eta; the paper tunes it for each dataset, mostly to about this."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """How slowly the mean of d changes."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """How slowly the mean of its square changes."""
    adaptivity: float = Field(1e-3, gt=0)
    """The paper's tau: the smaller, the more alike are the steps of all weights."""

    def step(self, fed: Federation, name: str, change: Floats) -> Floats:
        """m = beta1 m + (1 - beta1) d; v = beta2 v + (1 - beta2) d^2; step eta m / (sqrt(v) + tau)."""
        mean, square = f"fedadam.m.{name}", f"fedadam.v.{name}"
        m = self.beta1 * fed.state.get(mean, 0.0) + (1 - self.beta1) * change
        v = self.beta2 * fed.state.get(square, self.adaptivity**2) + (1 - self.beta2) * change**2
        fed.state |= {mean: m.astype(np.float32), square: v.astype(np.float32)}
        step: Floats = self.server_rate * m / (np.sqrt(v) + self.adaptivity)
        return step
