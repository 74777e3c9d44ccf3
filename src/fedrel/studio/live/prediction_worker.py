"""The process in which the studio reads text: it keeps the last model, and can be ended if it takes too long.

A request is a line of JSON on standard input, its answer a line of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fedrel.data.kb import KnowledgeBase, read_kb
from fedrel.errors import UserError
from fedrel.inference.document_model import DocumentModel
from fedrel.inference.model import Model, load_model
from fedrel.inference.pasted import predict_text


def main() -> None:
    """Answer until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may print between the answers
    known: dict[str, Model | DocumentModel] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            folder = asked["model"]
            if folder not in known:
                known.clear()
                known[folder] = load_model(folder)
            answer = _answer(known[folder], asked)
        except UserError as error:
            answer = {"problem": error.problem, "hint": error.hint or ""}
        except Exception as error:  # whatever a text or a model's files bring about: the studio goes on
            answer = {"problem": f"the model failed: {type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(model: Model | DocumentModel, asked: dict[str, Any]) -> dict[str, Any]:
    kb = read_kb(Path(asked["kb"])) if asked["kb"] else None
    if asked["names"]:
        kb = kb or KnowledgeBase()
        kb.names.update({name: {name: None} for name in asked["names"]})
    marks = [(start, end, kind) for start, end, kind in asked["marks"]]
    threshold = asked["threshold"]
    found = predict_text(model, asked["text"], marks=marks, kb=kb, threshold=threshold)
    return {
        "lines": found.lines,
        "documents": found.documents,
        "asked": found.asked,
        "unit": found.unit,
        "threshold": model.threshold if threshold is None else threshold,
        "tuned": model.tuned and threshold is None,
    }


if __name__ == "__main__":
    main()
