"""`fedrel predict`: relations in new text, as JSON lines with the sentences or tokens that they are based on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.extractors.findings import Finding, by_document
from fedrel.files import atomic_file
from fedrel.inference.document_model import DocumentModel
from fedrel.inference.model import Prediction, load_model
from fedrel.inference.text_forms import documents_in, opened, sentences_in

Count = Callable[[Iterable[Any]], Iterable[Any]]
"""Passes on what is read, and may count it."""


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


def _as_line(found: Finding, known: Collection[tuple[str, str, str]] | None) -> dict[str, Any]:
    line = found.as_json()
    if known is not None:
        line["known"] = (found.head.id, found.relation, found.tail.id) in known
    return line
