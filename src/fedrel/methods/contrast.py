"""The contrast of MOON and FedLCC: towards the global model, away from the site's previous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


ONE_MODEL = (
    "with one place to train, the global model is its own previous one, and a contrast of the two is constant"
)


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
