"""`fedrel predict`: relations out of new text, as JSON lines with their probability and what they rest on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fedrel.cli.progress import counting
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from fedrel.extractors.findings import Finding, by_document
from fedrel.files import atomic_file
from fedrel.inference.document_model import DocumentModel
from fedrel.inference.model import Model, Prediction, load_model

REPORTED = 100  # documents that a report shows


def write_predictions(
    folder: Path,
    texts: Sequence[Path],
    kb: Path | None,
    threshold: float,
    out: Path | None,
    report: Path | None = None,
) -> None:
    """Predict and write; with a knowledge base, each fact says whether that had it already.

    `report` is a page with what was found in documents, marked in their texts.
    """
    model = load_model(folder)
    found: Iterable[dict[str, Any]]
    if isinstance(model, DocumentModel):
        findings = _in_documents(model, texts, kb, threshold)
        if report is not None:
            _write_report(report, findings)
        found = (one.as_json() for one in findings)
    elif report is not None:
        problem = "a report shows what was found in documents, but this is a model of sentences"
        raise UserError(problem, hint="leave --report out: the output names every fact's sentences")
    else:
        found = _in_sentences(model, texts, kb, threshold)
    lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in found)
    if out is None:
        sys.stdout.writelines(lines)
    else:
        with atomic_file(out) as part, part.open("w", encoding="utf-8") as file:
            file.writelines(lines)


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
    model: Model, texts: Sequence[Path], kb: Path | None, threshold: float
) -> Iterable[dict[str, Any]]:
    from fedrel.data.kb import read_kb

    base = read_kb(kb) if kb else None
    with counting("reading") as count:
        found = model.predict(count(_instances(texts, base)), threshold=threshold)
    known = base.triples if base else None
    return (as_json(one, known) for one in found)


def _in_documents(
    model: DocumentModel, files: Sequence[Path], kb: Path | None, threshold: float
) -> list[Finding]:
    if kb is not None:
        problem = "a model of documents reads entities from its input, not from a knowledge base"
        raise UserError(problem, hint="leave --kb out")
    documents = (document for path in files for document in model.read(path))
    with counting("reading") as count:
        return model.predict(count(documents), threshold=threshold)


def _write_report(path: Path, findings: Sequence[Finding]) -> None:
    from fedrel.studio.report import write_findings_report

    in_order = sorted(findings, key=lambda one: one.row)
    documents = len({one.row for one in findings})
    shown = [one for _, one in islice(by_document(in_order), REPORTED)]
    write_findings_report(path, shown, findings=len(findings), documents=documents)


def _instances(texts: Sequence[Path], kb: Any) -> Iterator[Instance]:
    if kb is not None:
        from fedrel.data.align import align

        yield from align(texts, kb, na_rate=1.0, seed=0)
    else:
        from fedrel.data.readers.opennre import JSONLines

        for path in texts:
            yield from JSONLines().read(path, labelled=False)
