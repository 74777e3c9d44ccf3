"""Relations in a text that someone pasted, with entities marked by hand, named, or found by a knowledge base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.data.align import KnowledgeBase
from fedrel.data.annotations import Document
from fedrel.data.convert import sentences_of
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from fedrel.extractors.findings import by_document
from fedrel.files import ScratchFolder
from fedrel.inference.document_model import DocumentModel
from fedrel.inference.model import Model, Prediction
from fedrel.inference.predict import as_json
from fedrel.inference.text_forms import documents_in, form_of, sentences_in, with_marks

Mark = tuple[int, int, str]
"""The characters [start, end) of an entity, and its type or "". Marks of one wording are one entity."""


@dataclass(frozen=True, slots=True)
class FoundInText:
    """What was found: as `fedrel predict` writes it, and by document, as `evidence.json` has it."""

    lines: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    asked: int  # sentences with a pair, or documents
    unit: str


def predict_text(
    model: Model | DocumentModel,
    text: str,
    *,
    marks: Sequence[Mark] = (),
    kb: KnowledgeBase | None = None,
    threshold: float | None = None,
) -> FoundInText:
    """What a model finds in a text. Without marks it may have any form that `fedrel predict` reads."""
    with ScratchFolder() as scratch:
        file = Path(scratch) / "text.txt"
        file.write_text(text, encoding="utf-8")
        if not marks and kb is None and form_of(file) == "text":
            problem = "it is not known which entities to look for"
            raise UserError(problem, hint="Mark them, name them, or choose a knowledge base.")
        try:
            if isinstance(model, DocumentModel):
                return _in_documents(model, _documents(model, text, file, marks, kb), threshold)
            return _in_sentences(model, text, _sentences(text, file, marks, kb), threshold)
        except UserError as error:  # the file is not one of the user's
            raise UserError(error.problem, line=error.line, hint=error.hint) from error


def _documents(
    model: DocumentModel, text: str, file: Path, marks: Sequence[Mark], kb: KnowledgeBase | None
) -> list[Document]:
    if marks:
        return [with_marks(text, marks, model.pairs)]
    return list(documents_in([file], kb, model.pairs))


def _sentences(text: str, file: Path, marks: Sequence[Mark], kb: KnowledgeBase | None) -> list[Instance]:
    return list(sentences_of(with_marks(text, marks, {})) if marks else sentences_in([file], kb))


def _in_documents(model: DocumentModel, asked: list[Document], threshold: float | None) -> FoundInText:
    found = model.predict(asked, threshold=threshold)
    in_order = sorted(found, key=lambda one: one.row)
    documents = [one for _, one in by_document(in_order, most=None)]
    return FoundInText([one.as_json() for one in found], documents, len(asked), "documents")


def _in_sentences(model: Model, text: str, asked: list[Instance], threshold: float | None) -> FoundInText:
    found = model.predict(asked, threshold=threshold) if asked else []
    own = {support.text for one in found for support in one.sentences}
    whole = all(sentence in text for sentence in own)
    texts = [text] if whole else sorted(own)
    documents = [
        {
            "document": "the text" if whole else f"sentence {number}",
            "text": one,
            "findings": [_finding(fact, one) for fact in found if _is_in(fact, one)],
        }
        for number, one in enumerate(texts, 1)
    ]
    shown = [one for one in documents if one["findings"]]
    return FoundInText([as_json(one) for one in found], shown, len(asked), "sentences")


def _is_in(fact: Prediction, text: str) -> bool:
    return any(support.text in text for support in fact.sentences)


def _finding(fact: Prediction, text: str) -> dict[str, Any]:
    """A fact in the form that documents have: its sentences are the evidence."""
    inside = [one for one in fact.sentences if one.text in text]
    starts = [text.index(one.text) for one in inside]

    def entity(identity: str, name: str, end: str) -> dict[str, Any]:
        spans = [getattr(one, end) for one in inside]
        mentions = sorted({(at + a, at + b) for at, (a, b) in zip(starts, spans, strict=True)})
        return {"id": identity, "name": name, "mentions": mentions}

    return {
        "h": entity(fact.head, fact.head_name, "head"),
        "relation": fact.relation,
        "t": entity(fact.tail, fact.tail_name, "tail"),
        "probability": fact.probability,
        "evidence": [
            {"text": one.text, "start": at, "end": at + len(one.text), "share": one.probability}
            for one, at in zip(inside, starts, strict=True)
        ],
    }
