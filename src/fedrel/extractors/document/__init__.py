"""The document extractor: ATLOP's (Zhou et al. 2021), with a sigmoid for each relation (FedLCC, Section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from fedrel.data.documents import DocumentCorpus
from fedrel.data.store import Corpus, Progress
from fedrel.extractors.batches import Ints
from fedrel.extractors.transformer import EncoderKind, EncoderSection

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Extractor
    from fedrel.extractors.document.document_pieces import DocumentInputs
    from fedrel.extractors.document.document_transformer import DocumentTransformer
    from fedrel.extractors.findings import Finding


class DocumentSection(EncoderSection):
    """The document extractor: ATLOP's, with a sigmoid for each relation (FedLCC, Section 3.2)."""

    kind: str = "document"
    """Chooses this kind of extractor."""
    window: int | None = Field(None, ge=16)
    """Pieces read at once; longer documents are read in windows that overlap. None: as many as the encoder can."""
    block_size: int = Field(64, ge=1)
    """Of the grouped bilinear function."""
    frozen_layers: int = Field(0, ge=0)
    """So many of the encoder's lowest layers, and its embeddings, stay as they are."""


class DocumentKind(EncoderKind[DocumentSection, "DocumentInputs"]):
    """The document extractor as a kind of extractor."""

    name = "document"
    section = DocumentSection
    unit = "documents"

    def network(
        self, section: DocumentSection, relations: int, generator: torch.Generator
    ) -> DocumentTransformer:
        """The document transformer."""
        from fedrel.extractors.document.document_transformer import document_transformer

        return document_transformer(
            section.encoder,
            relations,
            generator,
            block_size=section.block_size,
            frozen_layers=section.frozen_layers,
        )

    def tokenise(
        self,
        section: DocumentSection,
        corpus: Corpus,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> DocumentInputs:
        """Documents as word pieces."""
        from fedrel.extractors.document.document_pieces import tokenise

        return tokenise(corpus.require(DocumentCorpus), section.encoder, section.window, progress, folder)

    def open_inputs(self, folder: Path, corpus: Corpus, about: Mapping[str, Any]) -> DocumentInputs:
        """The pieces, mapped from the disk."""
        from fedrel.extractors.document.document_pieces import DocumentInputs

        return DocumentInputs.open(folder, corpus.require(DocumentCorpus))

    def find(
        self,
        extractor: Extractor,
        inputs: DocumentInputs,
        rows: Ints,
        relations: Sequence[str],
        threshold: float,
    ) -> Iterator[Finding]:
        """The relations found, with the tokens that both entities attend to."""
        from fedrel.extractors.document.document_transformer import find

        return find(cast("DocumentTransformer", extractor), inputs, rows, relations, threshold)
