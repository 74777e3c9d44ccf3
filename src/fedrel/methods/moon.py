"""MOON: Li, He and Song 2021, Model-Contrastive Federated Learning.

While a site trains, what its model makes of a sentence is drawn towards what the global model makes of it, and
away from what the site's own model made of it at the end of the round in which it last took part (Eq. 3).

Both of these are constants of a round: each is computed once for every sentence, whatever the number of epochs.
So a site need not keep its previous model, only the vectors that this model gives to the site's sentences: the
same numbers, and for a large model a small part of its bytes.

A site that takes part for the first time has no previous model and leaves the contrast out, as the authors'
released code does in its first round. The extractor stays as it is: no projection head is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.errors import UserError
from fedrel.federation.messages import Message, Model, RefusedError
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


KEPT = "moon.vectors"  # in a site's memory: its sentences' vectors under its model of last time, [S, d]
SENTENCE_HEADS = ("none", "one")  # the bag heads whose vectors are those of single sentences


@dataclass(frozen=True, slots=True)
class Anchors:
    """What two other models make of the sentences that a site trains on."""

    rows: npt.NDArray[np.int64]  # [n], ascending
    now: Tensor  # [n, d], z_glob
    before: Tensor  # [n, d], z_prev

    def contrast(self, rows: npt.NDArray[np.int64], vectors: Tensor, tau: float) -> Tensor:
        """Eq. 3: -log(exp(s_glob / tau) / (exp(s_glob / tau) + exp(s_prev / tau))), s cosines, the batch's mean."""
        from torch.nn.functional import cosine_similarity, softplus

        at = np.searchsorted(self.rows, rows)
        nearer = cosine_similarity(vectors, self.now[at]) - cosine_similarity(vectors, self.before[at])
        return softplus(-nearer / tau).mean()


class MOON(FedAvg):
    """FedAvg with the model-contrastive loss; `mu` 0 is FedAvg itself."""

    name: ClassVar[str] = "moon"

    mu: float = Field(1.0, ge=0)
    """How much the contrast counts beside the cross-entropy."""
    tau: float = Field(0.5, gt=0)
    """The contrast's temperature."""

    # The coordinator's half.

    def prepare(self, fed: Federation) -> list[Message | Mapping[int, Message]]:
        """Refuse a bag head that mixes sentences: there is no one sentence to compare the models by."""
        if self.train_head not in SENTENCE_HEADS:
            raise UserError(
                f"{self.name} compares what models make of a sentence, but the head {self.train_head!r} mixes them",
                hint="compose moon with fedavg, one or lazy-mil",
            )
        return super().prepare(fed)

    # The site's half.

    def fit(self, site: Site) -> int:
        """Local training between two looks at the site's sentences: one for this round, one for the next."""
        if not self.mu:
            return super().fit(site)
        site.begin(site.received(Model).weights)
        site.memo[KEPT] = self.anchors(site)
        examples = super().fit(site)
        site.remember({KEPT: site.vectors(site.rows).cpu().numpy()})
        return examples

    def anchors(self, site: Site) -> Anchors | None:
        """The two models' vectors, with the global model at hand; None for a site without a previous model."""
        import torch

        before = (site.recall() or {}).get(KEPT)
        if before is None:
            return None
        rows = np.unique(self.examples(site).rows)
        if not np.isin(rows, site.rows).all():
            raise RefusedError("a site's previous model is known for its own sentences only")
        now = site.vectors(rows)
        return Anchors(rows, now, torch.from_numpy(before[site.index_of(rows)]).to(now))

    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """l = l_sup + mu * l_con."""
        loss = super().loss(site, batch, reading)
        anchors: Anchors | None = site.memo.get(KEPT)
        if anchors is None:
            return loss
        read = batch.rows[reading.weights.cpu().numpy() > 0]  # ONE reads one sentence of each bag
        return loss + self.mu * anchors.contrast(read, reading.vectors, self.tau)
