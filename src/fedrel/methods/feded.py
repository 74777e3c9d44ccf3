"""FedED: Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction.

Sites do not upload weights. They train, predict the coordinator's small labelled set D_v, and upload these
predictions: a few kilobytes. The coordinator averages them to a teacher and trains the global model on D_v
with the teacher beside the labels (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.federation.messages import Array, Message, Model, RefusedError, Update
from fedrel.federation.method import OwnStep, at_coordinator, at_site
from fedrel.federation.predictions import SMALLEST, BytePredictions, Floats, Predictions, in_parts
from fedrel.methods.baselines import needs_validation
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, dense

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


@dataclass(frozen=True, slots=True)
class Teacher(Message):
    """At the coordinator: the teacher's logits z for every sentence of D_v (Eq. 5)."""

    logits: Annotated[npt.NDArray[np.float32], Array("float32", ("validation", "relations"))]
    """A row for each sentence of D_v, a column for each relation."""


class FedED(FedAvg):
    """Sites upload predictions of a labelled set, and the coordinator distils them into the global model."""

    name: ClassVar[str] = "feded"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction"
    )
    train_head: ClassVar[str] = "none"  # the examples are single sentences

    temperature: float = Field(1.0, gt=0)
    """τ of Eq. 4. The paper does not give its value; 1 is our choice."""
    teacher: Literal["logits", "probs"] = "logits"
    """What is averaged to z: `logits`, as the paper's text says, or `probs`, as its Eq. 5 is written."""
    upload: Literal["float16", "uint8"] = "float16"
    """The type in which a probability is sent."""
    levels: int = Field(0, ge=0)
    """Probabilities are rounded to multiples of 1 / levels before they are sent; 0: to the type's own numbers."""

    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Algorithm 1: collect the predictions, distil their mean."""
        needs_validation(self.name, fed)
        predict: Callable[[Site], Predictions | BytePredictions] = (
            self.predict if self.upload == "float16" else self.predict_bytes
        )
        answers = [answer.read() for _, answer in fed.ask(predict, fed.model, *self.before_training(fed))]
        if not answers:
            raise NoAnswerError
        update = fed.work(self.distil, fed.model, Teacher(self.ensemble(answers).astype(np.float32)))
        fed.learned(update)
        fed.weights = self.server_update(fed, dense(fed.weights, update.weights))

    def ensemble(self, answers: Sequence[Floats]) -> Floats:
        """Eq. 5: the teacher's logits z, the mean over the sites."""
        if self.teacher == "logits":
            smallest = 0.5 / self.levels if self.levels else SMALLEST  # what was rounded to zero was less
            answers = [np.log(np.maximum(answer, smallest)) for answer in answers]
        mean: Floats = np.mean(answers, axis=0)
        return mean

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse predictions that are not one distribution over the relations for each sentence of D_v."""
        super().check(fed, site, answer)
        if isinstance(answer, Predictions | BytePredictions):
            found, expected = answer.probabilities.shape, (fed.validation, fed.relations)
            if found != expected:
                raise RefusedError(f"predictions are {found}, expected {expected}: sentences by relations")
            answer.check()

    @at_coordinator(takes=(Model, Teacher), gives=Update)
    def distil(self, coordinator: Site) -> Update:
        """One pass over D_v (Algorithm 1, lines 8 to 10)."""
        import torch

        coordinator.begin(coordinator.received(Model).weights)
        z = torch.from_numpy(coordinator.received(Teacher).logits)
        for batch in coordinator.batches(coordinator.validation, epochs=1):
            reading = coordinator.read("none", batch)
            taught = z[coordinator.index_of(batch.rows)].to(reading.logits)
            coordinator.step(self.distillation(reading.logits, reading.labels, taught))
        return coordinator.update(len(coordinator.rows))

    def distillation(self, logits: Tensor, labels: Tensor, z: Tensor) -> Tensor:
        """Eq. 4 and 6: CE(y, p) + KL(q || p), q = softmax(z / τ), the mean over a batch."""
        from torch.nn.functional import cross_entropy, kl_div

        q = (z / self.temperature).softmax(1)
        return cross_entropy(logits, labels) + kl_div(logits.log_softmax(1), q, reduction="batchmean")

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

    def examples(self, site: Site) -> Bags:
        """The site's sentences, each on its own (Eq. 3)."""
        return site.singles(site.rows)

    @at_site(takes=(Model,), gives=Predictions)
    def predict(self, site: Site) -> Predictions:
        """Train, then predict p(r|s) for all of D_v."""
        self.fit(site)
        return Predictions.of(self.told(site))

    @at_site(takes=(Model,), gives=BytePredictions)
    def predict_bytes(self, site: Site) -> BytePredictions:
        """The same, sent in 8 bits."""
        self.fit(site)
        return BytePredictions.of(self.told(site))

    def told(self, site: Site) -> Floats:
        """The probabilities as they are told, [V, R]."""
        probabilities = site.probabilities(site.validation)
        return in_parts(probabilities, self.levels) / self.levels if self.levels else probabilities
