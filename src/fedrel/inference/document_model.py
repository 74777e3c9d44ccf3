"""A trained document extractor, and the relations it finds in documents, with the tokens it looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.store import TEST
from fedrel.data.text_files import lines
from fedrel.evaluation.document_metrics import THRESHOLD
from fedrel.extractors.document.find import Finding, find

if TYPE_CHECKING:
    from fedrel.config.schema import DocumentData, DocumentSection
    from fedrel.extractors.document.network import DocumentTransformer


class DocumentModel:
    """A trained extractor, its relations, and which pairs to ask it about."""

    def __init__(
        self,
        extractor: DocumentTransformer,
        section: DocumentSection,
        relations: Sequence[str],
        pairs: Mapping[str, Any],
    ) -> None:
        self.extractor, self.relations = extractor, relations
        self._section, self._pairs = section, pairs

    def read(self, path: Path) -> Iterator[Document]:
        """The documents of a PubTator or DocRED file, with the pairs that this model is for."""
        first = next((line.strip() for _, line in lines(path) if line.strip()), "")
        if first[:1] in ("[", "{"):
            return DocRED().read(path, pair_types=self._pairs["pair_types"])
        return PubTator().read(path, **self._pairs)

    def predict(self, documents: Iterable[Document], *, threshold: float = THRESHOLD) -> list[Finding]:
        """The relations with a probability of at least `threshold`, surest first.

        The documents' own relations are not looked at.
        """
        from fedrel.extractors.document.marked_pieces import tokenise

        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch:
            # Columns on disk: the input may be larger than memory.
            asked = ((TEST, replace(one, facts=())) for one in documents)
            corpus = DocumentCorpus.build(asked, Path(scratch) / "input", ["NA"])
            if not len(corpus):
                return []
            inputs = tokenise(corpus, self._section, folder=Path(scratch) / "pieces")
            found = list(find(self.extractor, inputs, corpus.rows(TEST), self.relations, threshold))
        return sorted(found, key=lambda one: -one.probability)


def pair_options(section: DocumentData, corpus: DocumentCorpus) -> dict[str, Any]:
    """How pairs are to be chosen in new documents: as they were in those the model was trained on."""
    types = section.pair_types
    if section.format == "eog":  # whose files list their pairs one by one
        first = np.repeat(corpus.entity_starts[:-1], np.diff(corpus.pair_starts))
        ends = corpus.entity_type[corpus.pairs + first[:, None]]
        types = [(corpus.types[head], corpus.types[tail]) for head, tail in np.unique(ends, axis=0).tolist()]
    return {"pair_types": types, "directions": section.directions, "id_separator": section.id_separator}
