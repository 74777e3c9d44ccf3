"""FedLCC: Xiao, Jin, Hao 2024, Federated Document-Level Biomedical RE with Localized Context Contrast.

In training, the localized context of every pair (Eq. 5) is drawn towards the one that the global model of the
round sees, and away from the one that the site's own model saw at the end of the last round that the site took
part in (Eq. 12).

The last two are constants of a round: each is computed once for every pair, whatever the number of epochs, and
without dropout. As with MOON, a site stores not its previous model but the contexts that this model gives to
the site's pairs: the same numbers in a small part of the bytes. A site that takes part for the first time has
no previous model and leaves the contrast out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.federation.messages import Model, RefusedError
from fedrel.methods.fedavg import FedAvg
from fedrel.methods.moon import ONE_MODEL, Anchors

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.document.document_pieces import DocumentBatch
    from fedrel.extractors.document.document_transformer import PairReading
    from fedrel.extractors.heads import Reading
    from fedrel.federation.site import Site


STORED = "fedlcc.contexts"  # at a site: its pairs' contexts under its previous model, [P, d]


class FedLCC(FedAvg):
    """FedAvg of documents with a contrast of the pairs' localized contexts."""

    name: ClassVar[str] = "fedlcc"
    reads: ClassVar[tuple[str, ...]] = ("documents",)
    paper: ClassVar[str] = (
        "Xiao, Jin, Hao 2024, Federated Document-Level Biomedical RE with Localized Context Contrast"
    )

    weighting: Literal["examples", "uniform"] = "uniform"
    """How much an update counts in the average: all the same (Eq. 14), or by its number of examples."""
    mu: float = Field(0.1, ge=0)
    """μ, how much the contrast counts beside the cross-entropy (Eq. 13); 0 is FedAvg with uniform weights."""
    tau: float = Field(0.5, gt=0)
    """τ, the contrast's temperature."""

    # The site's half.

    def fit(self, site: Site) -> int:
        """Algorithm 1, local training: against the two models, then store the contexts of the trained one."""
        if not self.mu:
            return super().fit(site)
        site.begin(site.received(Model).weights)
        site.memo[STORED] = anchors(site)
        examples = super().fit(site)
        site.remember({STORED: contexts(site)[1].cpu().numpy()})
        return examples

    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """L = L_BCE + mu * L_LCC, both the mean over the batch's pairs (Eq. 11 to 13)."""
        loss = super().loss(site, batch, reading)
        others: Anchors | None = site.memo.get(STORED)
        if others is None or not len(reading.labels):
            return loss
        pairs, read = cast("DocumentBatch", batch).pairs, cast("PairReading", reading).contexts
        return loss + self.mu * others.contrast(pairs, read, self.tau)

    @classmethod
    def unsuited(cls) -> str | None:
        """One place that trains has no other model to be contrasted with."""
        return super().unsuited() if cls.several_sites else ONE_MODEL


def anchors(site: Site) -> Anchors | None:
    """The two other models' contexts, with the global model loaded; None for a site without a previous model."""
    import torch

    before = (site.recall() or {}).get(STORED)
    if before is None:
        return None
    pairs, now = contexts(site)
    order = np.argsort(pairs)
    return Anchors(pairs[order], now[order], torch.from_numpy(before[order]).to(now))


def contexts(site: Site) -> tuple[npt.NDArray[np.int64], Tensor]:
    """The site's pairs, and their contexts under the loaded model, [P, d], without dropout or gradient."""
    import torch

    from fedrel.extractors.document.document_transformer import DocumentTransformer

    model = site.extractor
    if not isinstance(model, DocumentTransformer):
        raise RefusedError("FedLCC contrasts the contexts of documents' pairs: sentences have none")
    pairs, found = [], []
    with torch.no_grad():
        for batch in site.scan(site.bags):
            pairs.append(cast("DocumentBatch", batch).pairs)
            found.append(model.pairs(batch, model.documents(batch)).contexts)
    return np.concatenate(pairs), torch.cat(found)
