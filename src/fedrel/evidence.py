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
    from fedrel.extractors.document import DocumentTransformer
    from fedrel.extractors.document_pieces import DocumentInputs

Ints = npt.NDArray[np.int64]

LOOKED_THROUGH = 64  # documents, for some in which anything is found
EACH = 5  # findings of a document that are shown, the surest


def evidence(
    extractor: DocumentTransformer, inputs: DocumentInputs, rows: Ints, documents: int
) -> list[dict[str, Any]]:
    """So many of the first documents in which anything is found, as `evidence.json` has them."""
    found = find(extractor, inputs, rows[:LOOKED_THROUGH], list(inputs.corpus.relations))
    return list(islice(_told(inputs, found), documents))


def _told(inputs: DocumentInputs, findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    corpus = inputs.corpus
    for row, own in groupby(findings, key=lambda one: one.row):
        surest = sorted(own, key=lambda one: -one.probability)[:EACH]
        view = corpus.view(row)
        facts = {
            (*pair, relation)
            for pair, labels in zip(view.pairs.tolist(), view.labels, strict=True)
            for relation in np.flatnonzero(labels).tolist()
        }
        ...
