"""`fedrel predict`: relations out of new text, as JSON lines with their probability and their sentences."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedrel.console import counting
from fedrel.data.instances import Instance
from fedrel.files import atomic_file
from fedrel.model import Prediction, load_model


def write_predictions(
    folder: Path, texts: Sequence[Path], kb: Path | None, threshold: float, out: Path | None
) -> None:
    """Predict and write; with a knowledge base, each fact says whether that had it already."""
    from fedrel.data.kb import read_kb

    model = load_model(folder)
    base = read_kb(kb) if kb else None
    with counting("reading") as count:
        found = model.predict(count(_instances(texts, base)), threshold=threshold)
    known = base.triples if base else None
    lines = (json.dumps(as_json(one, known), ensure_ascii=False) + "\n" for one in found)
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


def _instances(texts: Sequence[Path], kb: Any) -> Iterator[Instance]:
    if kb is not None:
        from fedrel.data.align import align

        yield from align(texts, kb, na_rate=1.0, seed=0)
    else:
        from fedrel.data.readers import reader

        for path in texts:
            yield from reader("jsonl")(path, labelled=False)
