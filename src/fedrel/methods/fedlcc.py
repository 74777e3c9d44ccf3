"""FedLCC: Xiao, Jin, Hao 2024, Federated Document-Level Biomedical RE with Localized Context Contrast.

While a site trains, the localized context of every pair (Eq. 5) is drawn towards the one that the global model of
this round sees, and away from the one that the site's own model saw at the end of the round in which it last took
part (Eq. 12).

The last two are constants of a round: each is computed once for every pair, whatever the number of epochs, and
without dropout. As with MOON, a site keeps on its disk not the model of last time but what it makes of the site's
pairs: the same numbers, in a small part of the bytes, and read in one pass at the end of a round instead of at the
beginning of the next. A site that takes part for the first time has no such model and leaves the contrast out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.federation.messages import Model, RefusedError
from fedrel.methods.fedavg import FedAvg
from fedrel.methods.moon import Anchors

if TYPE_CHECKING:
    from torch import Tensor

    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.federation.site import Site


KEPT = "fedlcc.contexts"  # in a site's memory: its pairs' contexts under its model of last time, [P, d]


class FedLCC(FedAvg):
    """FedAvg of documents with the localized context contrast; `mu` 0 is FedAvg that counts all sites alike."""

    name: ClassVar[str] = "fedlcc"

    weighting: Literal["examples", "uniform"] = "uniform"
    """Eq. 14: all sites count the same."""
    mu: float = Field(0.1, ge=0)
    """How much the contrast counts beside the cross-entropy (Eq. 13)."""
    tau: float = Field(0.5, gt=0)
    """The contrast's temperature."""

    # The site's half.

    def fit(self, site: Site) -> int:
        """Local training between two looks at the site's pairs: one for this round, one for the next."""
        if not self.mu:
            return super().fit(site)
        site.begin(site.received(Model).weights)
        site.memo[KEPT] = self.anchors(site)
        examples = super().fit(site)
        site.remember({KEPT: contexts(site)[1].cpu().numpy()})
        return examples

    def anchors(self, site: Site) -> Anchors | None:
        """The two models' contexts, with the global model at hand; None for a site without a previous model."""
        import torch

        before = (site.recall() or {}).get(KEPT)
        if before is None:
            return None
        pairs, now = contexts(site)
        order = np.argsort(pairs)
        return Anchors(pairs[order], now[order], torch.from_numpy(before[order]).to(now))

    def loss(self, site: Site, batch: Batch, reading: Reading) -> Tensor:
        """L = L_BCE + mu * L_LCC, both the mean over the batch's pairs (Eq. 11 to 13)."""
        from fedrel.extractors.document.network import PairReading
        from fedrel.extractors.document.windows import DocumentBatch

        loss = super().loss(site, batch, reading)
        anchors: Anchors | None = site.memo.get(KEPT)
        if anchors is None or not len(reading.labels):
            return loss
        assert isinstance(reading, PairReading) and isinstance(batch, DocumentBatch)
        return loss + self.mu * anchors.contrast(batch.pairs, reading.contexts, self.tau)


def contexts(site: Site) -> tuple[npt.NDArray[np.int64], Tensor]:
    """The site's pairs, and their contexts under the model at hand, [P, d], without dropout or gradient."""
    import torch

    from fedrel.extractors.document.network import DocumentTransformer
    from fedrel.extractors.document.windows import DocumentBatch

    model = site.extractor
    if not isinstance(model, DocumentTransformer):
        raise RefusedError("FedLCC contrasts the contexts of documents' pairs: sentences have none")
    pairs, found = [], []
    with torch.no_grad():
        for batch in site.scan(site.bags):
            assert isinstance(batch, DocumentBatch)
            pairs.append(batch.pairs)
            found.append(model.pairs(batch, model.documents(batch)).contexts)
    return np.concatenate(pairs), torch.cat(found)
