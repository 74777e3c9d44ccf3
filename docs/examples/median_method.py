"""The median of the sites' weights (Yin et al. 2018), with a vote on each relation by the sites that have it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedrel.federation.coordinator import Federation
from fedrel.federation.messages import Array, Message, RefusedError
from fedrel.federation.method import at_site
from fedrel.federation.site import Site
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, dense


@dataclass(frozen=True, slots=True)
class ClassCounts(Message):
    """Up: how many sentences of each relation a site has."""

    counts: Annotated[np.ndarray, Array("int64", ("relations",), low=0)]
    """A number for each relation."""


class Median(FedAvg):
    """FedAvg with the median of the sites' weights, number by number, in place of their mean."""

    name: ClassVar[str] = "median"
    paper: ClassVar[str] = "Yin et al. 2018, Byzantine-Robust Distributed Learning"

    fewest: int = Field(1, ge=1)
    """How many sentences of a relation a site must have to vote on the relation's row of the classifier."""

    def round(self, fed: Federation) -> None:
        """Ask for the counts, let the sites train, take medians."""
        counts = {site: answer.counts for site, answer in fed.ask(self.count)}
        models = {}
        for site, update in fed.ask(self.train, fed.model):
            models[site] = dense(fed.weights, update.weights)
            fed.learned(update)
        if not models:
            raise NoAnswerError
        weights = {name: np.median([m[name] for m in models.values()], axis=0) for name in fed.weights}
        for relation, row in enumerate(weights["classifier.weight"]):
            voters = [k for k in models if k in counts and counts[k][relation] >= self.fewest]
            row[:] = np.median([models[k]["classifier.weight"][relation] for k in voters or models], axis=0)
        fed.weights = {name: array.astype(np.float32) for name, array in weights.items()}

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse counts that cannot be true."""
        super().check(fed, site, answer)
        expected = (fed.relations, fed.sizes[site])
        if isinstance(answer, ClassCounts) and (len(answer.counts), answer.counts.sum()) != expected:
            raise RefusedError(f"counts {answer.counts.tolist()}, expected {expected[1]} sentences in all")

    @at_site(takes=(), gives=ClassCounts)
    def count(self, site: Site) -> ClassCounts:
        """How many of the site's sentences have each relation."""
        return ClassCounts(site.label_counts)
