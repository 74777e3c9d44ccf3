"""Relations in new text: `fedrel predict` on files, and a text that someone pasted.

Files give JSON lines with the sentences or tokens that relations are based on. In a pasted text entities are marked
by hand, named, or found by a knowledge base.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.data.align import KnowledgeBase
from fedrel.data.annotations import Document
from fedrel.data.convert import sentences_of
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from fedrel.extractors.findings import Finding, by_document
from fedrel.files import ScratchFolder, atomic_file
from fedrel.inference.model import DocumentModel, Model, Prediction, load_model
from fedrel.inference.text_forms import documents_in, form_of, opened, sentences_in, with_marks

Count = Callable[[Iterable[Any]], Iterable[Any]]
"""Passes on what is read, and may count it."""

Mark = tuple[int, int, str]
"""The characters [start, end) of an entity, and its type or "". Marks of one wording are one entity."""


@dataclass(frozen=True)
class Predicted:
    """What a model found, as JSON objects, and the texts that it found anything in."""

    lines: Sequence[dict[str, Any]]
    model: str
    threshold: float
    why: str  # where the threshold comes from
    read: int
    unit: str
    texts: Sequence[dict[str, Any]] = ()  # as in `evidence.json`

    def write(self, out: Path | None) -> None:
        """Write JSON lines to a file, or to standard output."""
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in self.lines)
        if out is None:
            sys.stdout.writelines(lines)
        else:
            with atomic_file(out) as part, part.open("w", encoding="utf-8") as file:
                file.writelines(lines)

    def summary(self, out: Path | None) -> str:
        """What was done, in a line."""
        facts = f"{len(self.lines):,} {'fact' if len(self.lines) == 1 else 'facts'}"
        where = f"written to {out or 'standard output'}"
        how = f"{self.model}, threshold {self.threshold:g} ({self.why})"
        unit = f"{self.unit}s" if self.read != 1 else self.unit
        said = f"{facts} in {self.read:,} {unit}, {where}; {how}"
        if not self.read:
            return f"{said}\nno text mentions two of the entities: check the input, and the names of --kb if given"
        return said if self.lines else f"{said}\nno probability is as high: --threshold sets a lower one"

    def for_report(self, files: Sequence[str | Path]) -> dict[str, Any]:
        """What a page of findings shows: the documents or sentences that have any, and how they were found."""
        about = {
            "Model": self.model.removeprefix("model "),
            "Threshold": f"{self.threshold:g} ({self.why})",
            "Input": ", ".join(map(str, files)),
            f"{self.unit.capitalize()}s read": f"{self.read:,}",
        }
        unit = "document" if self.unit == "document" else "sentence"
        return {"texts": self.texts, "facts": len(self.lines), "unit": unit, "about": about}


def predict(
    folder: Path,
    files: Sequence[str | Path],
    *,
    kb: Path | None = None,
    threshold: float | None = None,
    count: Count = iter,
) -> Predicted:
    """What a model finds in files, folders, patterns or standard input (`-`), in any form of text.

    With a knowledge base, names are looked for in raw text, and each fact says whether it was known already.
    Without a threshold, the model's own counts.
    """
    from fedrel.data.align import read_kb

    model = load_model(folder)
    base = read_kb(kb) if kb else None
    known = base.triples if base else None
    read = 0

    def counted(rows: Iterable[Any]) -> Iterator[Any]:
        nonlocal read
        for read, row in enumerate(rows, 1):  # noqa: B007
            yield row

    with opened(files) as found:
        if isinstance(model, DocumentModel):
            asked = count(counted(documents_in(found, base, model.pairs)))
            findings = model.predict(asked, threshold=threshold)
            lines = [_as_line(one, known) for one in findings]
            in_order = sorted(findings, key=lambda one: one.row)
            texts = [one for _, one in by_document(in_order, most=None)]
        else:
            asked = count(counted(sentences_in(found, base)))
            predictions = model.predict(asked, threshold=threshold)
            lines, texts = [as_json(one, known) for one in predictions], by_sentence(predictions)
    why = (
        "given" if threshold is not None else "tuned on dev" if model.tuned else "the default: none was tuned"
    )
    return Predicted(
        lines=lines,
        model=f"model {folder} ({model.method})" if model.method else f"model {folder}",
        threshold=model.threshold if threshold is None else threshold,
        why=why,
        read=read,
        unit="document" if model.unit == "documents" else "marked sentence",
        texts=texts,
    )


def as_json(found: Prediction, known: Any = None) -> dict[str, Any]:
    """A prediction as it is written."""
    line: dict[str, Any] = {
        "h": {"id": found.head, "name": found.head_name},
        "relation": found.relation,
        "t": {"id": found.tail, "name": found.tail_name},
        "probability": round(found.probability, 6),
    }
    if known is not None:
        line["known"] = (found.head, found.relation, found.tail) in known
    line["sentences"] = [
        {
            "text": one.text,
            "h": list(one.head),
            "t": list(one.tail),
            "source": one.source,
            "probability": round(one.probability, 6),
        }
        for one in found.sentences
    ]
    return line


def by_sentence(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """The sentences that predictions are based on, each once with all its facts, as a page of findings has them."""
    texts: dict[tuple[str, str], dict[str, Any]] = {}
    for found in predictions:
        for one in found.sentences:
            empty = {"document": one.source, "text": one.text, "findings": []}
            shown = texts.setdefault((one.source, one.text), empty)
            shown["findings"].append(
                {
                    "h": {"id": found.head, "name": found.head_name, "mentions": [one.head]},
                    "relation": found.relation,
                    "t": {"id": found.tail, "name": found.tail_name, "mentions": [one.tail]},
                    "probability": round(found.probability, 6),
                    "sentences": len(found.sentences),
                    "evidence": [],
                }
            )
    return list(texts.values())


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


def _as_line(found: Finding, known: Collection[tuple[str, str, str]] | None) -> dict[str, Any]:
    line = found.as_json()
    if known is not None:
        line["known"] = (found.head.id, found.relation, found.tail.id) in known
    return line


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
