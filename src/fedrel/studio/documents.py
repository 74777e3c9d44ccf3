"""What was found in documents, with the entities and the tokens that the model looked at marked in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedrel.studio.runs import FoundRelation, ReadDocument

LEVELS = 3  # of attention that are told apart


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of a text: of the head, of the tail, of both or of neither, and how much it is looked at."""

    text: str
    head: bool
    tail: bool
    level: int  # 0 for not much, up to LEVELS
    share: float


@dataclass(frozen=True, slots=True)
class FindingView:
    """A relation, and the document's text as it was read for it."""

    found: FoundRelation
    text: list[Stretch]


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document and what was found in it, surest first."""

    name: str
    findings: list[FindingView]


def document_views(documents: Sequence[ReadDocument]) -> list[DocumentView]:
    """The documents of a run to be shown."""
    return [
        DocumentView(one.document, [FindingView(found, stretches(one.text, found)) for found in one.findings])
        for one in documents
    ]


def stretches(text: str, found: FoundRelation) -> list[Stretch]:
    """Cut a text where a mention or an attended token begins or ends; they may overlap."""
    spans = [*found.h.mentions, *found.t.mentions, *((one.start, one.end) for one in found.evidence)]
    borders = sorted({0, len(text), *(min(max(at, 0), len(text)) for span in spans for at in span)})
    most = max((one.share for one in found.evidence), default=0.0)
    cut = []
    for start, end in pairwise(borders):
        share = next((one.share for one in found.evidence if one.start <= start < one.end), 0.0)
        level = -int(-LEVELS * share // most) if most else 0
        head, tail = (any(a <= start < b for a, b in who.mentions) for who in (found.h, found.t))
        cut.append(Stretch(text[start:end], head, tail, level, share))
    return cut
