"""`fedrel predict`: relations in new text, as JSON lines with the sentences or tokens that they are based on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from fedrel.extractors.findings import Finding, by_document
from fedrel.files import atomic_file
from fedrel.inference.document_model import DocumentModel
from fedrel.inference.model import Model, Prediction, load_model

REPORTED = 100  # documents that a report shows

Count = Callable[[Iterable[Any]], Iterable[Any]]
"""Passes on what is read, and may count it."""


@dataclass(frozen=True)
class Predicted:
    """What was found, as JSON objects; of documents, also as findings."""

    lines: Sequence[dict[str, Any]]
    findings: Sequence[Finding] = ()

    def write(self, out: Path | None) -> None:
        """Write JSON lines to a file, or to standard output."""
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in self.lines)
        if out is None:
            sys.stdout.writelines(lines)
        else:
            with atomic_file(out) as part, part.open("w", encoding="utf-8") as file:
                file.writelines(lines)

    def for_report(self) -> dict[str, Any]:
        """The first documents with findings, as a report shows them, and how many there are of both."""
        in_order = sorted(self.findings, key=lambda one: one.row)
        shown = [one for _, one in islice(by_document(in_order), REPORTED)]
        documents = len({one.row for one in self.findings})
        return {"shown": shown, "findings": len(self.findings), "documents": documents}


def predict(
    folder: Path,
    files: Sequence[Path],
    *,
    kb: Path | None = None,
    threshold: float = 0.5,
    report: bool = False,
    count: Count = iter,
) -> Predicted:
    """What a model finds in files; with a knowledge base, each fact says whether that had it already.

    `report` says that a report will be asked for, which only documents have.
    """
    model = load_model(folder)
    if model.unit == "documents":
        findings = _in_documents(model, files, kb, threshold, count)
        return Predicted([one.as_json() for one in findings], findings)
    if report:
        problem = "a report shows what was found in documents, but this is a model of sentences"
        raise UserError(problem, hint="leave --report out: the output names every fact's sentences")
    return Predicted(_in_sentences(model, files, kb, threshold, count))


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


def _in_sentences(
    model: Model, files: Sequence[Path], kb: Path | None, threshold: float, count: Count
) -> list[dict[str, Any]]:
    from fedrel.data.kb import read_kb

    base = read_kb(kb) if kb else None
    found = model.predict(count(_instances(files, base)), threshold=threshold)
    known = base.triples if base else None
    return [as_json(one, known) for one in found]


def _in_documents(
    model: DocumentModel, files: Sequence[Path], kb: Path | None, threshold: float, count: Count
) -> list[Finding]:
    if kb is not None:
        problem = "a model of documents reads entities from its input, not from a knowledge base"
        raise UserError(problem, hint="leave --kb out")
    documents = (document for path in files for document in model.read(path))
    return model.predict(count(documents), threshold=threshold)


def _instances(texts: Sequence[Path], kb: Any) -> Iterator[Instance]:
    if kb is not None:
        from fedrel.data.align import align

        yield from align(texts, kb, na_rate=1.0, seed=0)
    else:
        from fedrel.data.readers.opennre import JSONLines

        for path in texts:
            yield from JSONLines().read(path, labelled=False)
