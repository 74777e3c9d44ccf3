"""What a model finds in documents and where it looks: as it is written, and document by document for a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.document_model import Finding, Found, find

if TYPE_CHECKING:
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
    found = by_document(find(extractor, inputs, rows[:LOOKED_THROUGH], relations))
    shown = []
    for row, one in islice(found, documents):
        facts = _facts(inputs.corpus.view(row))
        for finding in one["findings"]:
            finding["right"] = (finding["h"]["id"], finding["relation"], finding["t"]["id"]) in facts
        shown.append(one)
    return shown


def by_document(findings: Iterable[Finding]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Findings that come document by document: each one's row, its text, and the surest that were found in it."""
    for row, group in groupby(findings, key=lambda one: one.row):
        own = sorted(group, key=lambda one: -one.probability)
        told = [finding_as_json(one) for one in own[:EACH]]
        yield row, {"document": own[0].document, "text": own[0].text, "findings": told}


def finding_as_json(found: Finding) -> dict[str, Any]:
    """A relation found in a document as it is written."""
    return {
        "document": found.document,
        "h": _entity(found.head),
        "relation": found.relation,
        "t": _entity(found.tail),
        "probability": round(found.probability, 6),
        "evidence": [
            {"text": one.text, "start": one.start, "end": one.end, "share": round(one.share, 6)}
            for one in found.evidence
        ],
    }


def _entity(entity: Found) -> dict[str, Any]:
    return {
        "id": entity.id,
        "name": entity.name,
        "type": entity.type,
        "mentions": [list(mention) for mention in entity.mentions],
    }


def _facts(view: DocumentView) -> set[tuple[str, str, str]]:
    """What the document's annotators found, by the entities' ids."""
    ids, relations = view.entity_ids, list(view.corpus.relations)
    return {
        (ids[head], relations[relation], ids[tail])
        for (head, tail), labels in zip(view.pairs.tolist(), view.labels, strict=True)
        for relation in np.flatnonzero(labels[1:]) + 1
    }
