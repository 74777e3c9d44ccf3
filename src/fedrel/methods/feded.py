"""FedED: Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction.

Sites do not upload weights. They train, predict the coordinator's small labelled set D_v, and upload these
predictions: a few kilobytes. The coordinator averages them to a teacher and trains the global model on D_v
with the teacher beside the labels (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.federation.messages import Message, Model, RefusedError, Update
from fedrel.federation.method import at_coordinator, at_site
from fedrel.federation.predictions import BytePredictions, Floats, Predictions, Teacher
from fedrel.methods.baselines import needs_validation
from fedrel.methods.summed_predictions import SummedPredictions
from fedrel.tensors.weights import NoAnswerError, dense

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


class FedED(SummedPredictions):
    """Sites upload predictions of a labelled set, and the coordinator distils them into the global model."""

    name: ClassVar[str] = "feded"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = (
        "Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction"
    )
    train_head: ClassVar[str] = "none"  # the examples are single sentences

    temperature: float = Field(1.0, gt=0)
    """τ of Eq. 4. The paper does not give its value; 1 is our choice."""
    upload: Literal["float16", "uint8"] = "float16"
    """The type in which a probability is sent."""
    # The coordinator's half.

    def round(self, fed: Federation) -> None:
        """Algorithm 1: collect the predictions, distil their mean."""
        needs_validation(self.name, fed)
        predict: Callable[[Site], Predictions | BytePredictions] = (
            self.predict if self.upload == "float16" else self.predict_bytes
        )
        asked = self.collect(fed, predict, fed.model, *self.before_training(fed))
        answers = [answer.read() for _, answer in asked]
        if not answers:
            raise NoAnswerError
        update = fed.work(self.distil, fed.model, Teacher(self.ensemble(answers).astype(np.float32)))
        fed.learned(update)
        fed.weights = self.server_update(fed, dense(fed.weights, update.weights))

    def ensemble(self, answers: Sequence[Floats]) -> Floats:
        """Eq. 5: the teacher's logits z, the mean over the sites."""
        mean: Floats = np.mean([self.to_average(answer) for answer in answers], axis=0)
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

    # The site's half.

    def examples(self, site: Site) -> Bags:
        """The site's sentences, each on its own (Eq. 3)."""
        return site.singles(site.rows)

    @at_site(takes=(Model,), gives=BytePredictions)
    def predict_bytes(self, site: Site) -> BytePredictions:
        """The same, sent in 8 bits."""
        self.fit(site)
        return BytePredictions.of(self.told(site))
