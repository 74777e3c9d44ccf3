"""FedED: Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction.

Sites do not upload weights. They train, predict the coordinator's small labelled set D_v, and upload these
predictions: a few kilobytes. The coordinator averages them to a teacher and trains the global model on D_v
with the teacher beside the labels (Algorithm 1).

What crosses are probabilities, for both kinds of teacher: their logarithms are the logits up to a constant in
each row, which a softmax does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.federation.messages import Array, Message, Model, RefusedError, Update
from fedrel.federation.method import Method, at_coordinator, at_site
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, dense

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


Floats = npt.NDArray[np.float64]

LEVELS = 255  # of an 8-bit probability: a row of them adds up to this
SLACK = 2**-10  # how far a float16 probability may be from the number it stands for, with room
SMALLEST = 2.0**-24  # the smallest float16: what was rounded to zero was less


@dataclass(frozen=True, slots=True)
class Predictions(Message):
    """Up: p(r|s) for every sentence of D_v, in float16."""

    probabilities: Annotated[
        npt.NDArray[np.float16], Array("float16", ("validation", "relations"), low=0, high=1)
    ]

    @classmethod
    def of(cls, probabilities: Floats) -> Predictions:
        """Rounded to float16."""
        return cls(probabilities.astype(np.float16))

    def read(self) -> Floats:
        """The probabilities again."""
        return self.probabilities.astype(np.float64)

    def check(self) -> None:
        """Each row is a distribution, up to rounding."""
        rows = self.read().sum(1)
        if (abs(rows - 1) > SLACK * self.probabilities.shape[1]).any():
            raise RefusedError(
                f"predictions of a sentence add up to {rows[abs(rows - 1).argmax()]:.4g}, not 1"
            )


@dataclass(frozen=True, slots=True)
class BytePredictions(Message):
    """Up: the same in 8 bits: whole parts of 255 that add up to 255 in every row."""

    probabilities: Annotated[npt.NDArray[np.uint8], Array("uint8", ("validation", "relations"))]

    @classmethod
    def of(cls, probabilities: Floats) -> BytePredictions:
        """By largest remainders: each number is off by less than a part, and none of the 255 is lost."""
        parts = probabilities / probabilities.sum(1, keepdims=True) * LEVELS
        whole = np.floor(parts)
        missing = LEVELS - whole.sum(1, keepdims=True)
        rank = np.argsort(np.argsort(whole - parts, axis=1, kind="stable"), axis=1)
        return cls((whole + (rank < missing)).astype(np.uint8))

    def read(self) -> Floats:
        """The probabilities again; what was rounded to nothing is taken for half a part."""
        parts = np.maximum(self.probabilities.astype(np.float64), 0.5)
        parts /= parts.sum(1, keepdims=True)
        return parts

    def check(self) -> None:
        """Each row is a distribution."""
        rows = self.probabilities.sum(1, dtype=np.int64)
        if (rows != LEVELS).any():
            raise RefusedError(f"predictions of a sentence add up to {rows[rows != LEVELS][0]}, not {LEVELS}")


@dataclass(frozen=True, slots=True)
class Teacher(Message):
    """At the coordinator: the teacher's logits z for every sentence of D_v (Eq. 5)."""

    logits: Annotated[npt.NDArray[np.float32], Array("float32", ("validation", "relations"))]


class FedED(FedAvg):
    """Ensemble distillation: predictions up, weights down."""

    name: ClassVar[str] = "feded"

    temperature: float = Field(1.0, gt=0)
    """τ of Eq. 4. The paper does not give its value; 1 is our choice."""
    teacher: Literal["logits", "probs"] = "logits"
    """What is averaged to z: logits, as the paper's text says, or probabilities, as its Eq. 5 is written."""
    upload: Literal["float16", "uint8"] = "float16"
    """What a probability travels as."""

    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Algorithm 1: collect the predictions, distil their mean."""
        needs_validation(self, fed)
        predict: Callable[[Site], Predictions | BytePredictions] = (
            self.predict if self.upload == "float16" else self.predict_bytes
        )
        answers = [answer.read() for _, answer in fed.ask(predict, fed.model, *self.prepare(fed))]
        if not answers:
            raise NoAnswerError
        update = fed.work(self.distil, fed.model, Teacher(self.ensemble(answers).astype(np.float32)))
        fed.learned(update)
        fed.weights = self.conclude(fed, dense(fed.weights, update.weights))

    def ensemble(self, answers: Sequence[Floats]) -> Floats:
        """Eq. 5: the teacher's logits z, the mean over the sites."""
        if self.teacher == "logits":
            answers = [np.log(np.maximum(answer, SMALLEST)) for answer in answers]
        mean: Floats = np.mean(answers, axis=0)
        return mean

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """One distribution over the relations for each sentence of D_v."""
        super().check(fed, site, answer)
        if isinstance(answer, Predictions | BytePredictions):
            found, expected = answer.probabilities.shape, (fed.validation, fed.relations)
            if found != expected:
                raise RefusedError(f"predictions are {found}, expected {expected}: sentences by relations")
            answer.check()

    @at_coordinator(takes=(Model, Teacher), gives=Update)
    def distil(self, desk: Site) -> Update:
        """One pass over D_v (Algorithm 1, lines 8 to 10)."""
        import torch

        desk.begin(desk.received(Model).weights)
        z = torch.from_numpy(desk.received(Teacher).logits)
        for batch in desk.batches(desk.validation, epochs=1):
            reading = desk.read("none", batch)
            taught = z[desk.index_of(batch.rows)].to(reading.logits)
            desk.step(self.distillation(reading.logits, reading.labels, taught))
        return desk.update(len(desk.rows))

    def distillation(self, logits: Tensor, labels: Tensor, z: Tensor) -> Tensor:
        """Eq. 4 and 6: CE(y, p) + KL(q || p), q = softmax(z / τ), the mean over a batch."""
        from torch.nn.functional import cross_entropy, kl_div

        q = (z / self.temperature).softmax(1)
        return cross_entropy(logits, labels) + kl_div(logits.log_softmax(1), q, reduction="batchmean")

    # The site's half.

    def examples(self, site: Site) -> Bags:
        """Sentences, each on its own (Eq. 3)."""
        return site.singles(site.rows)

    @at_site(takes=(Model,), gives=Predictions)
    def predict(self, site: Site) -> Predictions:
        """Local training, then p(r|s) for all of D_v."""
        self.fit(site)
        return Predictions.of(site.probabilities(site.validation))

    @at_site(takes=(Model,), gives=BytePredictions)
    def predict_bytes(self, site: Site) -> BytePredictions:
        """The same, uploaded in 8 bits."""
        self.fit(site)
        return BytePredictions.of(site.probabilities(site.validation))


class ValidationOnly(FedAvg):
    """The coordinator on its own: E epochs a round on D_v, no site is asked."""

    name: ClassVar[str] = "validation-only"

    def round(self, fed: Federation) -> None:
        """What a site does in FedAvg, at the coordinator's desk."""
        needs_validation(self, fed)
        update = fed.work(self.train, fed.model)
        fed.learned(update)
        fed.weights = self.conclude(fed, dense(fed.weights, update.weights))


def needs_validation(method: Method, fed: Federation) -> None:
    """Refuse to go on without labelled sentences at the coordinator."""
    if not fed.validation:
        raise UserError(
            f"{method.name} needs labelled sentences at the coordinator",
            hint="set partition.coordinator, the share of the training data that it holds, to 0.2 for example",
        )
