"""FedCMC: Du, He, Jin 2023, Contrast with Major Classifier Vectors for Federated Medical Relation Extraction.

The more sentences of a class a site has, the further apart that class's vector (its row of the classifier) stands
from the site's other ones. So the coordinator can tell, without knowing any site's labels, which site has the best
vector of each class (Eq. 12). It sends these major vectors with the next round's weights, and sites train their
encoders so that these vectors can classify their sentences too (Eq. 14 to 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.errors import UserError
from fedrel.evaluation.heterogeneity import class_distances
from fedrel.extractors.objective import FixedClassifier
from fedrel.federation.coordinator import class_vectors
from fedrel.federation.messages import LARGEST, Array, Message, RefusedError, Update
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


Vectors = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]

CHOSEN = "fedcmc.vectors"  # in the coordinator's state: the vectors that the last round led to


@dataclass(frozen=True, slots=True)
class ClassVectors(Message):
    """Down: one vector for each class, each from some site's classifier."""

    vectors: Annotated[Vectors, Array("float32", ("relations", "dimension"), low=-LARGEST, high=LARGEST)]
    """A row for each relation."""


class FedCMC(FedAvg):
    """FedAvg in which the best class vectors of all sites teach every site's encoder."""

    name: ClassVar[str] = "fedcmc"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Du, He, Jin 2023, Contrast with Major Classifier Vectors for Federated Medical Relation Extraction "
        "with Heterogeneous Label Distribution"
    )
    carries: ClassVar[tuple[type[Message], ...]] = (ClassVectors,)
    single_answers: ClassVar[str] = "fedcmc's choice of class vectors"

    mu: float = Field(1.0, ge=0)
    """μ of Eq. 15, how much the sites' vectors count beside the own classifier; 0 is FedAvg. The paper does not
    give its value; 1 is our choice."""
    vectors: Literal["major", "minor", "random"] = "major"
    """Of each class, the vector of the site where it stands furthest apart, least so, or of a random site."""

    # The coordinator's half.

    def before_training(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Send the vectors that the last round led to; in the first round, the global classifier's own."""
        own = class_vectors(fed.weights, fed.weights)
        if own is None:
            raise UserError(
                "fedcmc uses the classifier's rows as class vectors, which works only without a bias",
                hint="set extractor.bias = false; the document extractor always has a bias",
            )
        return [*super().before_training(fed), ClassVectors(fed.state.get(CHOSEN, own))]

    def on_update(self, fed: Federation, site: int, update: Update) -> None:
        """Eq. 12: of each class, keep this site's vector if it is better than the best so far."""
        super().on_update(fed, site, update)
        vectors = class_vectors(fed.weights, update.weights)
        assert vectors is not None  # `before_training` has checked it
        scores = self.scores(fed, site, vectors)
        fed.memo.setdefault(CHOSEN, Choice(vectors, scores)).offer(vectors, scores)

    def scores(self, fed: Federation, site: int, vectors: Vectors) -> Scores:
        """By which number a class's vector is chosen, lowest first: d(k,c) of Eq. 10, or that of an ablation."""
        match self.vectors:
            case "major":
                return class_distances(vectors)
            case "minor":
                return -class_distances(vectors)
            case "random":
                return fed.generator("class vectors", site).random(len(vectors))

    def after_training(self, fed: Federation) -> None:
        """Keep the chosen vectors for the next round."""
        super().after_training(fed)
        fed.state[CHOSEN] = fed.memo[CHOSEN].vectors

    @classmethod
    def only_mean(cls) -> str | None:
        """A rule would protect the weights and not the vectors."""
        return "it sends class vectors of single sites to all, which no rule over updates protects"

    # The site's half.

    def fixed_classifier(self, site: Site) -> FixedClassifier | None:
        """Eq. 14 and 15: mu times the cross-entropy of h . major vectors, which trains the encoder only."""
        vectors, expected = site.received(ClassVectors).vectors, site.extractor.classifier.weight.shape
        if vectors.shape != expected:
            raise RefusedError(f"class vectors are {vectors.shape}, expected {tuple(expected)}")
        return FixedClassifier(vectors, self.mu) if self.mu else None


class Choice:
    """Of each class the vector with the lowest score so far; among equals the first, that of the lowest site."""

    def __init__(self, vectors: Vectors, scores: Scores) -> None:
        self.vectors, self.scores = vectors.copy(), scores.copy()

    def offer(self, vectors: Vectors, scores: Scores) -> None:
        """Replace the vectors of the classes in which these have lower scores."""
        better = scores < self.scores
        self.vectors[better], self.scores[better] = vectors[better], scores[better]
