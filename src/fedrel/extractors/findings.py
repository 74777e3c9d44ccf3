"""Relations found in documents, each with the tokens that the extractor looked at; also as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

SHOWN = 5  # findings of a document that are shown, the most probable ones


@dataclass(frozen=True, slots=True)
class Token:
    """A token that both entities attend to: the characters [start, end) of its document, and its share."""

    text: str
    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class FoundEntity:
    """The head or the tail of a finding."""

    id: str
    name: str  # of its first mention
    type: str
    mentions: tuple[tuple[int, int], ...]  # characters


@dataclass(frozen=True, slots=True)
class Finding:
    """A relation that the model finds in a document, with the tokens it attends to most, those first."""

    row: int  # of the document in its corpus
    document: str
    text: str  # of the document, as characters are counted in
    head: FoundEntity
    relation: str
    tail: FoundEntity
    probability: float
    evidence: tuple[Token, ...]

    def as_json(self) -> dict[str, Any]:
        """The finding as `fedrel predict` writes it."""
        return {
            "document": self.document,
            "h": _entity(self.head),
            "relation": self.relation,
            "t": _entity(self.tail),
            "probability": round(self.probability, 6),
            "evidence": [
                {"text": one.text, "start": one.start, "end": one.end, "share": round(one.share, 6)}
                for one in self.evidence
            ],
        }


def by_document(
    findings: Iterable[Finding], most: int | None = SHOWN
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Findings that come document by document: each one's row, its text, and its `most` probable findings."""
    for row, group in groupby(findings, key=lambda one: one.row):
        own = sorted(group, key=lambda one: -one.probability)
        shown = [one.as_json() for one in own[:most]]
        yield row, {"document": own[0].document, "text": own[0].text, "findings": shown}


def _entity(entity: FoundEntity) -> dict[str, Any]:
    return {
        "id": entity.id,
        "name": entity.name,
        "type": entity.type,
        "mentions": [list(mention) for mention in entity.mentions],
    }
