from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrel.runs.records import Case, Sentence
from fedrel.studio.examples import Use, case_tables, pieces

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
