"""A trained document extractor, and the relations it finds in documents, with the tokens it looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.store import TEST
from fedrel.data.text_files import lines
from fedrel.evaluation.document_metrics import THRESHOLD
from fedrel.extractors.findings import Finding
from fedrel.extractors.saved import SavedModel


class DocumentModel:
    """A trained extractor, its relations, and which pairs to ask it about."""

    def __init__(self, saved: SavedModel) -> None:
        self.extractor, self.relations = saved.trained.extractor, saved.relations
        self._saved, self._pairs = saved, saved.pairs

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
        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch:
            # Columns on disk: the input may be larger than memory.
            asked = ((TEST, replace(one, facts=())) for one in documents)
            corpus = DocumentCorpus.build(asked, Path(scratch) / "input", ["NA"])
            if not len(corpus):
                return []
            inputs, find = self._saved.trained.read(corpus, Path(scratch)), self._saved.kind.find
            found = list(find(self.extractor, inputs, corpus.rows(TEST), self.relations, threshold))
        return sorted(found, key=lambda one: -one.probability)
