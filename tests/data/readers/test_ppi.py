from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedrel.data.load import load_files, split_rows
from fedrel.data.readers.ppi import OVERLAPPING, PPI
from fedrel.data.relations import NA
from fedrel.errors import UserError

HEADER = ",docid,isValid,passage,passageid"


def table(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "AIMed-train.csv"
    path.write_text("".join(f"{row}\n" for row in (header, *rows)))
    return path


def test_masks_are_the_entities(tmp_path: Path) -> None:
    rows = [
        '0,d0,True,"PROTEIN2, not PROTEIN, binds PROTEIN1.",d0.s1',
        "1,d0,False, PROTEIN1 PROTEIN2 ,d0.s2",
    ]
    first, second = PPI().read(table(tmp_path, *rows), relations=PPI.relations)
    assert first.text == "PROTEIN2, not PROTEIN, binds PROTEIN1."
    assert (first.head.start, first.tail.start, first.relation) == (
        first.text.index("PROTEIN1"),
        0,
        "interaction",
    )
    assert (second.relation, second.document, second.head.type) == (NA, "d0", "PROTEIN")
    assert first.head.id != second.head.id  # each row is a pair of its own


def test_a_row_without_a_mask_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = ["0,d0,False,PROTEIN1 ( PROTEIN .,d0.s1", "1,d0,False,PROTEIN1 and PROTEIN2,d0.s2"]
    reader = PPI()
    assert len(list(reader.read(table(tmp_path, *rows)))) == 1
    assert reader.problems.notes[OVERLAPPING].examples == ["AIMed-train.csv:2"]


@pytest.mark.parametrize(
    ("rows", "header", "line", "problem"),
    [
        (
            ["0,d0,maybe,PROTEIN1 PROTEIN2,p"],
            HEADER,
            2,
            "expected isValid to be True or False, found 'maybe'",
        ),
        (["0,d0,True"], HEADER, 2, "expected 5 cells, as in the first line, found 3"),
        ([], "docid,passage", 1, "no column is called 'isValid', found 'docid', 'passage'"),
        (['0,d0,True,"PROTEIN1" x,p'], HEADER, 2, "broken CSV"),
        (["0,d0,True,no mask,p"], HEADER, 2, "no protein of the passage is masked"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, rows: list[str], header: str, line: int, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as raised:
        list(PPI().read(table(tmp_path, *rows, header=header)))
    assert raised.value.line == line


def test_a_document_stays_on_one_side_of_a_split(tmp_path: Path) -> None:
    rows = [f"{n},d{n // 5},True,PROTEIN1 no {n} PROTEIN2,p{n}" for n in range(50)]
    corpus = load_files([(0, table(tmp_path, *rows))], "ppi")
    parts = split_rows(corpus, corpus.rows(0), (0.8, 0.2), seed=3)
    assert [len(part) for part in parts] == [40, 10]
    assert not {int(n) // 5 for n in parts[0]} & {int(n) // 5 for n in parts[1]}


def test_the_five_corpora(real_data: Path) -> None:
    files = sorted((real_data / "ppi").glob("*-train.csv.xz"))
    corpus = load_files([(0, file) for file in files], "ppi")
    assert Counter(np.asarray(corpus.relation).tolist()) == {0: 9982 - 108, 1: 3378 - 3}
