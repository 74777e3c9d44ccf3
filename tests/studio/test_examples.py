"""Case studies by sentence and method, and documents cut where mentions and attended tokens are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedrel.runs.records import Case, FoundRelation, Sentence
from fedrel.studio.examples import Use, case_tables, pieces, stretches
from fedrel.studio.report import write_run_report
from tests.studio.conftest import write_json
from tests.studio.html_page import Page

TEXT = "Zorbine brought on <hot>-head."
FOUND = {
    "h": {"id": "D1", "name": "Zorbine", "mentions": [[0, 7]]},
    "relation": "CID",
    "t": {"id": "D9", "name": "hot-head", "mentions": [[19, 29]]},
    "probability": 0.875,
    "right": False,
    "evidence": [
        {"start": 8, "end": 15, "share": 0.6},
        {"start": 24, "end": 29, "share": 0.3},
        {"start": 0, "end": 7, "share": 0.05},
    ],
}
spans = st.tuples(st.integers(0, 14), st.integers(0, 14)).map(lambda span: (min(span), max(span)))


def sentence(row: int, site: int, weight: float, seen: int = 3) -> Sentence:
    return Sentence(
        row=row, site=site, text="Ada met Bob.", head_span=(0, 3), tail_span=(8, 11), seen=seen, weight=weight
    )


def study(*sentences: Sentence, tail: str = "Bob") -> Case:
    return Case(head="Ada", relation="knows", tail=tail, sentences=list(sentences))


@given(st.text(max_size=12), spans, spans)
def test_pieces_mark_every_character_once(text: str, head: tuple[int, int], tail: tuple[int, int]) -> None:
    cut = pieces(text, head, tail)
    assert "".join(piece.text for piece in cut) == text
    marks = [(piece.head, piece.tail) for piece in cut for _ in piece.text]
    assert marks == [(head[0] <= at < head[1], tail[0] <= at < tail[1]) for at in range(len(text))]
    assert all(piece.text for piece in cut)


def test_methods_meet_in_one_table() -> None:
    tables = case_tables(
        {
            "one": [study(sentence(7, 2, 1.0), sentence(5, 2, 0.0), sentence(9, 1, 0.0, seen=0))],
            "lazy": [
                study(sentence(7, 2, 0.3), sentence(5, 2, 0.5)),
                study(sentence(1, 4, 0.049), tail="Cy"),
            ],
        }
    )
    assert [(table.head, table.relation, table.tail) for table in tables] == [
        ("Ada", "knows", "Bob"),
        ("Ada", "knows", "Cy"),
    ]
    lines = tables[0].lines
    assert [(line.site, line.row) for line in lines] == [(1, 9), (2, 5), (2, 7)]
    uses = [[cell and cell.use for cell in line.cells] for line in lines]
    assert uses == [[Use.UNSEEN, None], [Use.NO, Use.YES], [Use.YES, Use.PARTLY]]
    assert [cell and cell.use for cell in tables[1].lines[0].cells] == [None, Use.NO]


def test_no_cases() -> None:
    assert case_tables({"one": [], "lazy": []}) == []


def test_a_text_is_cut_at_mentions_and_tokens() -> None:
    cut = stretches(TEXT, FoundRelation.model_validate(FOUND))
    assert "".join(one.text for one in cut) == TEXT
    told = [(one.text, one.head, one.tail, one.level) for one in cut if one.text.strip()]
    assert told == [
        ("Zorbine", True, False, 1),
        ("brought", False, False, 3),
        (" on ", False, False, 0),
        ("<hot>", False, True, 0),
        ("-head", False, True, 2),
        (".", False, False, 0),
    ]


def test_without_evidence_only_mentions_are_marked() -> None:
    cut = stretches(TEXT, FoundRelation.model_validate({**FOUND, "evidence": []}))
    assert [(one.text, one.level) for one in cut if one.head or one.tail] == [
        ("Zorbine", 0),
        ("<hot>-head", 0),
    ]


def test_the_page_marks_what_was_found(make_run: Callable[..., Path]) -> None:
    folder = make_run()
    write_json(folder / "evidence.json", [{"document": "<b>7", "text": TEXT, "findings": [FOUND]}])
    page = Page(write_run_report(folder).read_text(encoding="utf-8"))
    assert "Zorbine D1 CID hot-head D9" in " ".join(page.words.split())
    assert "<b>7" in page.words and "not annotated" in page.words and "<hot>" in page.words
    assert {"class": "tail"} in page.all("mark")
    assert any(
        "looked-3" in one.get("class", "") and "0.6" in one.get("title", "") for one in page.all("span")
    )
    assert "documents" in [one.get("id") for one in page.all("section")]


def test_a_run_without_documents_has_no_such_part(make_run: Callable[..., Path]) -> None:
    page = Page(write_run_report(make_run()).read_text(encoding="utf-8"))
    assert "documents" not in [one.get("id") for one in page.all("section")]
