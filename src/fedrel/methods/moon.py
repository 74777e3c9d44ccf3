"""MOON: Li, He and Song 2021, Model-Contrastive Federated Learning.

In training, a sentence's vector is drawn towards the one that the global model gives it, and away from the one
that the site's own model gave it at the end of the last round that the site took part in (Eq. 3).

Both of these vectors are constants of a round: each is computed once for every sentence, whatever the number of
epochs. So a site stores not its previous model but the vectors that this model gives to the site's sentences:
the same numbers, and for a large model a small part of its bytes.

A site that takes part for the first time has no previous model and leaves the contrast out, as the authors'
released code does in its first round. The extractor stays as it is: no projection head is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.data.bags import Bags
from fedrel.federation.messages import Model, RefusedError
from fedrel.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.federation.site import Site


STORED = "moon.vectors"  # at a site: its sentences' vectors under its previous model, [S, d]
ONE_MODEL = (
    "with one place to train, the global model is its own previous one, and a contrast of the two is constant"
)
SENTENCE_HEADS = ("none", "one")  # the bag heads whose vectors are those of single sentences


class MOON(FedAvg):
    """FedAvg with a contrast between the global model and the site's previous one."""

    name: ClassVar[str] = "moon"
    reads: ClassVar[tuple[str, ...]] = ("sentences",)
    paper: ClassVar[str] = "Li, He, Song 2021, Model-Contrastive Federated Learning"

    mu: float = Field(1.0, ge=0)
    """μ, how much the contrast counts beside the cross-entropy; 0 is FedAvg."""
    tau: float = Field(0.5, gt=0)
    """τ, the contrast's temperature."""

    # The site's half.

    def fit(self, site: Site) -> int:
        """Algorithm 1, PartyLocalTraining: train against the two models, store the vectors of the trained one."""
        if not self.mu:
            return super().fit(site)
        site.begin(site.received(Model).weights)
        site.memo[STORED] = anchors(site, self.examples(site))
        examples = super().fit(site)
        site.remember({STORED: site.vectors(site.rows).cpu().numpy()})
        return examples

    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """l = l_sup + mu * l_con."""
        loss = super().loss(site, batch, reading)
        others: Anchors | None = site.memo.get(STORED)
        if others is None:
            return loss
        read = batch.rows[reading.weights.cpu().numpy() > 0]  # ONE reads one sentence of each bag
        return loss + self.mu * others.contrast(read, reading.vectors, self.tau)

    @classmethod
    def unsuited(cls) -> str | None:
        """A head that mixes sentences leaves no one sentence to compare the models by."""
        if cls.train_head not in SENTENCE_HEADS:
            return (
                f"moon compares the vectors of single sentences, and the head {cls.train_head!r} mixes them"
            )
        return super().unsuited() if cls.several_sites else ONE_MODEL


@dataclass(frozen=True, slots=True)
class Anchors:
    """The vectors that the two other models give to what a site trains on: MOON's sentences or FedLCC's pairs."""

    rows: npt.NDArray[np.int64]  # [n], which sentences or pairs they are, ascending
    now: Tensor  # [n, d], of the global model, z_glob
    before: Tensor  # [n, d], of the site's previous model, z_prev

    def contrast(self, rows: npt.NDArray[np.int64], vectors: Tensor, tau: float) -> Tensor:
        """-log(exp(s_glob / tau) / (exp(s_glob / tau) + exp(s_prev / tau))), s cosines, the mean over a batch.

        This is MOON's Eq. 3 and FedLCC's Eq. 12.
        """
        from torch.nn.functional import cosine_similarity, softplus

        at = np.searchsorted(self.rows, rows)
        nearer = cosine_similarity(vectors, self.now[at]) - cosine_similarity(vectors, self.before[at])
        return softplus(-nearer / tau).mean()


def anchors(site: Site, examples: Bags) -> Anchors | None:
    """The two other models' vectors, with the global model loaded; None for a site without a previous model."""
    import torch

    before = (site.recall() or {}).get(STORED)
    if before is None:
        return None
    rows = np.unique(examples.rows)
    if not np.isin(rows, site.rows).all():
        raise RefusedError("a site's previous model is known for its own sentences only")
    now = site.vectors(rows)
    return Anchors(rows, now, torch.from_numpy(before[site.index_of(rows)]).to(now))
