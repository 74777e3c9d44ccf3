"""A trained model of documents: it finds relations in them, and says which tokens it looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.relations import NA
from fedrel.data.store import TEST
from fedrel.data.text_files import lines
from fedrel.errors import UserError
from fedrel.evaluation.thresholds import UNTUNED
from fedrel.extractors.findings import Finding
from fedrel.extractors.saved import SavedModel
from fedrel.files import ScratchFolder

DocumentText = Document | str | Mapping[str, Any]
"""A document, one or more of them in PubTator's form, or one of DocRED's JSON objects."""


class DocumentModel:
    """A trained extractor for documents, and the rules by which it chooses the pairs to ask about."""

    unit: Literal["documents"] = "documents"

    def __init__(self, saved: SavedModel) -> None:
        self.extractor, self.relations = saved.trained.extractor, saved.relations
        self.method, self.tuned = saved.method, saved.threshold is not None
        self.threshold = UNTUNED if saved.threshold is None else saved.threshold
        self._saved, self.pairs = saved, saved.pairs

    def read(self, path: Path) -> Iterator[Document]:
        """The documents of a PubTator or DocRED file, with the pairs that this model is for."""
        first = next((line.strip() for _, line in lines(path) if line.strip()), "")
        if first[:1] in ("[", "{"):
            return DocRED().read(path, pair_types=self.pairs["pair_types"])
        return PubTator().read(path, **self.pairs)

    def predict(
        self, documents: Iterable[DocumentText] | DocumentText, *, threshold: float | None = None
    ) -> list[Finding]:
        """The relations with a probability of at least `threshold`, the most probable first.

        Without one, the model's own `threshold` counts, which was tuned on the development set.
        A document is a `Document`, as `read` yields them, text in PubTator's form (title, abstract and mentions; it
        may hold several documents), or one of DocRED's JSON objects. Relations that it is annotated with do not
        count.
        """
        with ScratchFolder() as scratch:
            # As columns on disk: the input may be larger than memory.
            found = self._documents(documents, Path(scratch))
            asked = ((TEST, replace(one, facts=())) for one in found)
            corpus = DocumentCorpus.build(asked, Path(scratch) / "input", [NA])
            if not len(corpus):
                return []
            inputs, rows = self._saved.trained.read(corpus, Path(scratch)), corpus.rows(TEST)
            least = self.threshold if threshold is None else threshold
            findings = self._saved.kind.find(self.extractor, inputs, rows, self.relations, least)
            return sorted(findings, key=lambda one: -one.probability)

    def _documents(
        self, documents: Iterable[DocumentText] | DocumentText, scratch: Path
    ) -> Iterator[Document]:
        """The documents in whatever form they are given; a single one may be given as it is."""
        match documents:
            case str() | Mapping() | Document():
                documents = [documents]
        for number, one in enumerate(documents, 1):
            match one:
                case str():
                    yield from self._parsed(one, number, scratch)
                case Mapping():
                    yield from self._parsed(json.dumps([one]), number, scratch)
                case _:
                    yield one

    def _parsed(self, text: str, number: int, scratch: Path) -> Iterator[Document]:
        """The documents in a text; an error names the text by its number."""
        file = scratch / "text"
        file.write_text(text, encoding="utf-8")
        try:
            yield from self.read(file)
        except UserError as error:
            where = f"text {number}"
            raise UserError(error.problem, file=where, line=error.line, hint=error.hint) from error
