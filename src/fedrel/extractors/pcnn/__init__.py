"""PCNN (Zeng et al. 2015): a convolution over words, pooled in three pieces around the two entities."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from fedrel.extractors.words import WordKind, WordSection
from fedrel.tensors.compiling import compiled_meanwhile

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Extractor


NOISED_HEADS = (
    "none",
    "one",
)  # the bag heads that kernels train with DP-SGD: those that train on single sentences


class PCNNSection(WordSection):
    """The options of PCNN."""

    kind: str = "pcnn"
    """Chooses this kind of extractor."""
    position_dimension: int = Field(5, ge=1)
    """Of each of the two position embeddings."""
    filters: int = Field(230, ge=1)
    """Of the convolution."""
    window: int = Field(3, ge=1)
    """Tokens that a filter sees; odd."""
    max_length: int = Field(120, ge=1)
    """Distances to the entities are clipped to plus or minus this."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Before the classifier, in training only."""
    bias: bool = True
    """Of the classifier; without it, the classifier's rows are the class vectors (FedCMC)."""

    @field_validator("window")
    @classmethod
    def _centred(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("a window is centred on its token, so it must be odd")
        return window


class PCNNKind(WordKind[PCNNSection]):
    """PCNN as a kind of extractor."""

    name = "pcnn"
    section = PCNNSection
    has_kernels = True

    def compiling(self, head: str | None, *, noised: bool = False) -> AbstractContextManager[None]:
        """The kernels of one way to train, and those that score."""
        training = "noised" if noised else "training"
        if head is None or (noised and head not in NOISED_HEADS):
            training = "gradients"
        parts = (training, "scoring")
        return compiled_meanwhile(f"{__name__}.all_kernels", Path(__file__).parent / "kernels", parts)

    def network(
        self,
        section: PCNNSection,
        vocabulary_size: int,
        relations: int,
        generator: torch.Generator,
        vectors: npt.NDArray[np.float32] | None = None,
    ) -> Extractor:
        """PCNN of the sizes that the section asks for."""
        from fedrel.extractors.pcnn.pcnn import PCNN

        return PCNN(
            vocabulary_size,
            relations,
            word_dimension=section.word_dimension,
            position_dimension=section.position_dimension,
            filters=section.filters,
            window=section.window,
            max_length=section.max_length,
            dropout=section.dropout,
            vectors=vectors,
            train_words=section.train_words,
            bias=section.bias,
            generator=generator,
        )
