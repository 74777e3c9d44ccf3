"""The one model that a process keeps in memory for all its sites, with the data it reads and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, slices

if TYPE_CHECKING:
    from fedrel.config.schema import Training
    from fedrel.extractors.base import Extractor
    from fedrel.extractors.batches import Batch
    from fedrel.federation.site_data import SiteData
    from fedrel.federation.site_memory import SiteStates
    from fedrel.tensors.weights import Weights


class ResidentModel:
    """A model that stays in memory; each site starts it from the global weights again.

    `new_extractor` builds the model, and another one where a method needs two. `triple_key` is the secret that real
    sites share; a simulation has none.
    """

    def __init__(
        self,
        site_data: SiteData,
        new_extractor: Callable[[], Extractor],
        training: Training,
        seed: int,
        states: SiteStates,
        triple_key: bytes | None = None,
    ) -> None:
        self.site_data, self.training, self.seed = site_data, training, seed
        self.states, self.triple_key = states, triple_key
        self.extractor = new_extractor()
        self._new_extractor = new_extractor
        self._others: dict[str, Extractor] = {}

    def other(self, role: str) -> Extractor:
        """A second model for methods that compare two; one for each role, kept in memory too."""
        if role not in self._others:
            self._others[role] = self._new_extractor()
        return self._others[role]

    def batch(self, bags: Bags) -> Batch:
        """Gather bags from the corpus."""
        return self.site_data.inputs.batch(bags, self.training.device)

    def can_fit(self, head: str) -> bool:
        """Whether the extractor's own kernels can train this bag head with the config's optimiser settings."""
        training = self.training
        plain = training.optimiser == "sgd" and training.clip is None and not training.warmup
        return plain and self.extractor.can_fit(head)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag, [B, R], under the given weights."""
        import torch

        self.extractor.begin(weights)
        with torch.inference_mode():
            parts = [
                self.extractor.probabilities(head, self.batch(part)).cpu().numpy()
                for part in slices(bags, self.site_data.inputs.at_once)
            ]
        return np.concatenate(parts)
