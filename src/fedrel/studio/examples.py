"""Examples on the pages: which sentences each method trained on, and what was found in documents.

The case study (Lazy MIL, Table 6) is a table for each fact: a row for each sentence, a column for each method. A
document is shown with the two entities of a finding and the tokens that they attend to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from fedrel.runs.folder import Run
from fedrel.runs.records import Case, FoundRelation, ReadDocument, Sentence

ALL = 0.995  # a mean weight that is 1 but for rounding
TRAINED, IGNORED = 0.5, 0.05  # mean weights from which a sentence counts as used, and below which as left out


class Use(StrEnum):
    """What a method made of a sentence."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNSEEN = "unseen"  # its site was never active, so the method had no choice


@dataclass(frozen=True, slots=True)
class Cell:
    """How much one method trained on one sentence."""

    use: Use
    weight: float


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a sentence: in the mention of the head, of the tail, of both or of neither."""

    text: str
    head: bool
    tail: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence: where it is, what it says, whether it states the fact, and each method's use of it."""

    site: int
    row: int
    pieces: list[Piece]
    expresses: bool | None
    cells: list[Cell | None]


@dataclass(frozen=True, slots=True)
class CaseTable:
    """A triple and the sentences that mention its pair."""

    head: str
    relation: str
    tail: str
    lines: list[Line]


def case_tables(cases: Mapping[str, Sequence[Case]]) -> list[CaseTable]:
    """Join the case studies of several methods by triple and by row of the corpus.

    Cells are in the order of `cases`; None for a method that did not report the sentence.
    """
    found: dict[tuple[str, str, str], dict[int, dict[str, Sentence]]] = {}
    for method, studies in cases.items():
        for case in studies:
            rows = found.setdefault((case.head, case.relation, case.tail), {})
            for sentence in case.sentences:
                rows.setdefault(sentence.row, {})[method] = sentence
    return [
        CaseTable(*triple, lines=sorted((_line(list(cases), by) for by in rows.values()), key=_place))
        for triple, rows in found.items()
    ]


def cases_to_show(run: Run) -> list[Case]:
    """A run's case study; nothing for a classification that trained on every sentence alike."""
    chosen = any(one.seen and one.weight < ALL for case in run.cases for one in case.sentences)
    return run.cases if chosen or run.classes is None else []


def pieces(text: str, head: tuple[int, int], tail: tuple[int, int]) -> list[Piece]:
    """Cut a sentence where its mentions begin and end; they may touch, nest or overlap.

    >>> [piece.text for piece in pieces("Ada met Bob.", (0, 3), (8, 11))]
    ['Ada', ' met ', 'Bob', '.']
    """
    borders = sorted({0, len(text), *(min(max(at, 0), len(text)) for at in (*head, *tail))})
    return [
        Piece(text[start:end], head[0] <= start < head[1], tail[0] <= start < tail[1])
        for start, end in pairwise(borders)
    ]


def _place(line: Line) -> tuple[int, int]:
    return line.site, line.row


def _line(methods: list[str], by_method: Mapping[str, Sentence]) -> Line:
    any_of_them = next(iter(by_method.values()))
    return Line(
        any_of_them.site,
        any_of_them.row,
        pieces(any_of_them.text, any_of_them.head_span, any_of_them.tail_span),
        any_of_them.expresses,
        [_cell(by_method[method]) if method in by_method else None for method in methods],
    )


def _cell(sentence: Sentence) -> Cell:
    if not sentence.seen:
        return Cell(Use.UNSEEN, sentence.weight)
    if sentence.weight >= TRAINED:
        return Cell(Use.YES, sentence.weight)
    return Cell(Use.PARTLY if sentence.weight >= IGNORED else Use.NO, sentence.weight)


LEVELS = 3  # of attention that are told apart


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of a text: in a mention of the head, the tail, both or neither; and how much it is attended to."""

    text: str
    head: bool
    tail: bool
    level: int  # 0 for not much, up to LEVELS
    share: float


@dataclass(frozen=True, slots=True)
class FindingView:
    """A relation, and the document's text with what matters for it marked."""

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
