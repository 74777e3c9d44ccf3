"""What a model finds in a few test documents and where it looks, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.document_model import Finding, find
from fedrel.predict import finding_as_json

if TYPE_CHECKING:
    from fedrel.data.documents.columns import DocumentCorpus
    from fedrel.data.documents.view import DocumentView
    from fedrel.extractors.document import DocumentTransformer
    from fedrel.extractors.document_pieces import DocumentInputs

Ints = npt.NDArray[np.int64]

LOOKED_THROUGH = 64  # documents, for some in which anything is found
EACH = 5  # findings of a document that are shown, the surest


def evidence(
    extractor: DocumentTransformer, inputs: DocumentInputs, rows: Ints, documents: int
) -> list[dict[str, Any]]:
    """So many of the first documents in which anything is found, as `evidence.json` has them."""
    relations = list(inputs.corpus.relations)
    found = find(extractor, inputs, rows[:LOOKED_THROUGH], relations)
    return list(islice(_told(inputs.corpus, found), documents))


def _told(corpus: DocumentCorpus, findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    for row, own in groupby(findings, key=lambda one: one.row):
        view = corpus.view(row)
        facts = _facts(view)
        surest = sorted(own, key=lambda one: -one.probability)[:EACH]
        yield {
            "document": view.id,
            "text": view.text,
            "findings": [
                finding_as_json(one) | {"right": (one.head.id, one.relation, one.tail.id) in facts}
                for one in surest
            ],
        }


def _facts(view: DocumentView) -> set[tuple[str, str, str]]:
    """What the document's annotators found, by the entities' ids."""
    ids, relations = view.entity_ids, list(view.corpus.relations)
    return {
        (ids[head], relations[relation], ids[tail])
        for (head, tail), labels in zip(view.pairs.tolist(), view.labels, strict=True)
        for relation in np.flatnonzero(labels[1:]) + 1
    }
