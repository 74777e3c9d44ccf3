"""Predictions in place of updates, how they are averaged, and what a site adds to a secure sum of them (FedED)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.federation.messages import Model
from fedrel.federation.method import OwnStep, at_site
from fedrel.federation.predictions import LOGS, SMALLEST, Floats, MeanPredictions, Predictions, in_parts
from fedrel.federation.summands import Summand
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class SummedPredictions(FedAvg):
    """Sites send predictions of the coordinator's labelled sentences; a base class without a name."""

    teacher: Literal["logits", "probs"] = "logits"
    """What is averaged to z: `logits`, as the paper's text says, or `probs`, as its Eq. 5 is written."""
    levels: int = Field(0, ge=0)
    """Probabilities are rounded to multiples of 1 / levels before they are sent; 0: to the type's own numbers."""

    def to_average(self, probabilities: Floats) -> Floats:
        """What the teacher is the mean of: logarithms of probabilities, or the probabilities (Eq. 5)."""
        if self.teacher == "probs":
            return probabilities
        smallest = 0.5 / self.levels if self.levels else SMALLEST  # what was rounded to zero was less
        return np.log(np.maximum(probabilities, smallest))

    def summed(self, fed: Federation, mean: Summand, sites: float) -> MeanPredictions:
        """The mean of the sites' predictions as if it were one site's."""
        return MeanPredictions.of(mean.numbers.reshape(fed.validation, fed.relations), self.teacher)

    def to_sum(self, fed: Federation, answer: Any) -> npt.NDArray[np.float32]:
        """A site's predictions, in the form in which they are averaged."""
        return (self.to_average(answer.read()) / LOGS).astype(np.float32)

    def sum_size(self, fed: Federation) -> int:
        """A number for each relation of each sentence of D_v."""
        return fed.validation * fed.relations

    def largest_weight(self, fed: Federation) -> int:
        """Eq. 5: all sites' predictions count the same."""
        return 1

    @classmethod
    def no_updates(cls) -> str | None:
        """Sites send predictions."""
        return "its sites send predictions, not updates"

    @classmethod
    def only_mean(cls) -> str | None:
        """The same."""
        return cls.no_updates()

    def reach(self, own: OwnStep) -> float:
        """The coordinator's steps, of two losses each, go where the site's own would go with as many steps."""
        return super().reach(own) + 2 * own.effort * own.length

    # The site's half.

    def summand(self, site: Site) -> Summand:
        """What the site adds to a sum of all sites: its predictions, in the form in which they are averaged."""
        numbers = (self.to_average(self.predict(site).read()) / LOGS).astype(np.float32)
        return Summand(numbers, weight=1.0)

    @at_site(takes=(Model,), gives=Predictions)
    def predict(self, site: Site) -> Predictions:
        """Train, then predict p(r|s) for all of D_v."""
        self.fit(site)
        return Predictions.of(self.told(site))

    def told(self, site: Site) -> Floats:
        """The probabilities as they are told, [V, R]."""
        probabilities = site.probabilities(site.validation)
        return in_parts(probabilities, self.levels) / self.levels if self.levels else probabilities
