"""The page of findings: each document or sentence once, with its text, its relations as a list, and as arcs.

The arcs need no script: entities stand one below the other, in the order in which the text mentions them, and each
relation is a curve from its head to its tail that carries the relation's number in the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedrel.data.text import sentences
from fedrel.runs.records import FoundEntity, FoundRelation, ReadDocument
from fedrel.studio import formatting as fmt

PER_PAGE = 200  # documents
_TITLE = 140  # characters
_NAME = 26  # characters of an entity's name beside the arcs
_EVIDENCE = 5  # tokens or sentences that are shown of a relation
_ROW, _NAMES, _ARCS = 30, 190, 130  # height of a row, width of the names and of the arcs, in pixels
_APART = 22  # between arcs of the same two entities


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether it mentions an entity of a finding."""

    text: str
    entity: bool


@dataclass(frozen=True, slots=True)
class Arc:
    """A relation as a curve: its path, the place of its number, and where its arrow points."""

    number: int
    path: str
    arrow: str  # the corners of its head
    x: float
    y: float
    said: str
    hover: str  # with the probability and the evidence


@dataclass(frozen=True, slots=True)
class Arcs:
    """The drawing of a document's relations."""

    names: list[tuple[str, float]]  # with the height of the row
    arcs: list[Arc]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document as it is shown."""

    anchor: str
    name: str
    title: str
    text: list[Piece]
    findings: list[FoundRelation]
    arcs: Arcs


def findings_pages(
    page: Path, texts: Sequence[Mapping[str, Any]], about: Mapping[str, str], facts: int, unit: str
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The path and the values of `findings.html` for each page; texts are given as in `evidence.json`.

    A fact that was found from several sentences is shown with each of them, so `facts` says how many there are.
    """
    read = [ReadDocument.model_validate(one) for one in texts]
    starts = range(0, max(len(read), 1), PER_PAGE)
    paths = [
        page if not number else page.with_stem(f"{page.stem}-{number + 1}") for number in range(len(starts))
    ]
    for number, (start, path) in enumerate(zip(starts, paths, strict=True)):
        shown = read[start : start + PER_PAGE]
        view = document_view if unit == "document" else sentence_view
        views = [view(one, f"{unit}-{place}") for place, one in enumerate(shown, start + 1)]
        yield (
            path,
            {
                "title": "Relations found in new text",
                "setting": "",
                "views": views,
                "first": start + 1,
                "facts": facts,
                "texts": len(read),
                "unit": unit,
                "about": about,
                "pages": [(one.name, one == path) for one in paths] if len(paths) > 1 else [],
                "number": number + 1,
            },
        )


def document_view(document: ReadDocument, anchor: str) -> DocumentView:
    """A document with all its findings, surest first; its first sentence is its title."""
    first = next(sentences(document.text), (0, 0))
    return _view(document, anchor, " ".join(document.text[slice(*first)].split()))


def sentence_view(sentence: ReadDocument, anchor: str) -> DocumentView:
    """A sentence with all its findings, surest first, of which the first is its title."""
    surest = sentence.findings[0]
    return _view(sentence, anchor, f"{surest.h.name} {relation_name(surest.relation)} {surest.t.name}")


def _view(document: ReadDocument, anchor: str, title: str) -> DocumentView:
    return DocumentView(
        anchor=anchor,
        name=document.document,
        title=title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…",
        text=list(_pieces(document)),
        findings=document.findings,
        arcs=arcs(document.findings),
    )


def relation_name(name: str) -> str:
    """A relation's name as people read it: without the path and the underscores that some corpora write.

    >>> relation_name("/people/person/place_of_birth"), relation_name("CID")
    ('place of birth', 'CID')
    """
    last = name.rstrip("/").rpartition("/")[2] or name
    return last.replace("_", " ").strip() or name


def arcs(findings: Sequence[FoundRelation]) -> Arcs:
    """The relations as curves between their entities, which are ordered by their first mention."""
    ends = [one for found in findings for one in (found.h, found.t)]
    entities: dict[str, FoundEntity] = {one.id: one for one in ends}
    first: dict[str, tuple[int, int]] = {}
    for one in ends:  # findings of sentences name only the mentions of their own sentences
        for mention in one.mentions:
            first[one.id] = min(mention, first.get(one.id, mention))
    order = sorted(entities.values(), key=lambda one: (first.get(one.id, (0, 0)), one.id))
    height = {one.id: _ROW * (place + 0.5) for place, one in enumerate(order)}
    longest = max((abs(height[one.h.id] - height[one.t.id]) for one in findings), default=1.0) or 1.0
    drawn, before = [], Counter[frozenset[str]]()
    for number, found in enumerate(findings, 1):
        start, end = height[found.h.id], height[found.t.id]
        pair = frozenset((found.h.id, found.t.id))
        away = _ARCS * (0.25 + 0.65 * abs(end - start) / longest) + _APART * before[pair]
        before[pair] += 1
        reach = away * 4 / 3  # a cubic goes 3/4 of the way
        bend = _NAMES + reach
        curve = [(_NAMES, start), (bend, start), (bend, end), (_NAMES, end)]
        path = "M{} C{} {} {}".format(*(f"{x:.1f} {y:.1f}" for x, y in curve))
        said = f"{number}. {found.h.name} {relation_name(found.relation)} {found.t.name}"
        hover = f"{said}: probability {fmt.share(found.probability)}"
        if found.evidence:
            hover += "; evidence: " + ", ".join(f"“{one.text}”" for one in found.evidence[:_EVIDENCE])
        arrow = f"{_NAMES},{end:.1f} {_NAMES + 8},{end - 4:.1f} {_NAMES + 8},{end + 4:.1f}"
        drawn.append(Arc(number, path, arrow, _NAMES + reach * 3 / 4, (start + end) / 2, said, hover))
    names = [(fmt.short(one.name or one.id, _NAME), height[one.id]) for one in order]
    most = max(before.values(), default=1)
    return Arcs(names, drawn, _NAMES + _ARCS + 20 + _APART * (most - 1), _ROW * len(order))


def _pieces(document: ReadDocument) -> Iterator[Piece]:
    """The text, cut where a mention of any finding's entity begins or ends."""
    spans = {
        tuple(span) for found in document.findings for one in (found.h, found.t) for span in one.mentions
    }
    size = len(document.text)
    borders = sorted({0, size, *(min(max(at, 0), size) for span in spans for at in span)})
    for start, end in pairwise(borders):
        yield Piece(document.text[start:end], any(a <= start < b for a, b in spans))
