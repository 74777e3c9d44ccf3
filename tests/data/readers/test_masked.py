"""Corpora with masked entities: GAD and EU-ADR, and protein interactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedrel.data.load import load_files, split_rows
from fedrel.data.readers.masked import GAD, OVERLAPPING, PPI
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance
from fedrel.errors import UserError

YES = "the @GENE$ variant raises the risk of @DISEASE$"
NO = "@DISEASE$ patients had no change in @GENE$ or @GENE$"
HEADER = ",docid,isValid,passage,passageid"


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def spoken(one: Instance) -> tuple[str, str]:
    return one.text[one.head.start : one.head.end], one.text[one.tail.start : one.tail.end]


@pytest.mark.parametrize(
    "lines", [(f"{YES}\t1", f"{NO}\t0"), ("index\tsentence\tlabel", f"0\t{YES}\t1", "", f"1\t{NO}\t0")]
)
def test_with_and_without_a_header(tmp_path: Path, lines: tuple[str, ...]) -> None:
    first, second = GAD().read(table(tmp_path, *lines), relations=GAD.relations)
    assert (first.text, first.relation, second.relation) == (YES, "association", NA)
    assert spoken(first) == spoken(second) == ("@GENE$", "@DISEASE$")
    assert (first.head.type, first.tail.type) == ("GENE", "DISEASE")
    assert second.head.start == NO.index("@GENE$")  # the first of two


def test_every_line_is_a_pair_of_its_own_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = table(tmp_path, f"{YES}\t1", f"{YES}\t1")
    first, second = GAD().read(path)
    assert len({first.head.id, first.tail.id, second.head.id, second.tail.id}) == 4
    again = list(GAD().read(path.rename(tmp_path / "other.tsv")))
    assert again == [first, second]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (YES, r"expected 2 columns \(sentence, label\), found 1"),
        (f"0\t{YES}\t1", r"expected 2 columns \(sentence, label\), found 3"),
        (f"{YES}\t2", "expected the label 0 or 1, found '2'"),
        ("the @GENE$ raises a risk\t1", r"the sentence has no @DISEASE\$\nhint: write @GENE\$ and"),
        ("it raises the risk of @DISEASE$\t1", r"the sentence has no @GENE\$"),
        (f"{YES}\t1", "'association' is not in the relation map"),
    ],
)
def test_says_which_line_is_wrong(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"train\.tsv:2: .*{problem}"):
        list(GAD().read(table(tmp_path, f"{NO}\t0", line), relations=RelationMap([NA])))


@pytest.mark.parametrize(
    ("corpus", "fold", "size", "associated"),
    [
        ("GAD", "1", 5330, 2801),
        ("GAD", "10", 5330, 2801),
        ("GAD", "blurb", 5330, 2801),
        ("euadr", "1", 355, 262),
    ],
)
def test_real_files(real_data: Path, corpus: str, fold: str, size: int, associated: int) -> None:
    archive = real_data / "gad_euadr" / "REdata.zip"
    instances = [
        one
        for part in ("train", "dev", "test")
        for one in GAD().read(archive / corpus / fold / f"{part}.tsv")
    ]
    assert Counter(one.relation for one in instances) == {"association": associated, NA: size - associated}
    assert len({one.head.id for one in instances}) == size
    assert {spoken(one) for one in instances} == {("@GENE$", "@DISEASE$")}


def protein_table(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "AIMed-train.csv"
    path.write_text("".join(f"{row}\n" for row in (header, *rows)))
    return path


def test_masks_are_the_entities(tmp_path: Path) -> None:
    rows = [
        '0,d0,True,"PROTEIN2, not PROTEIN, binds PROTEIN1.",d0.s1',
        "1,d0,False, PROTEIN1 PROTEIN2 ,d0.s2",
    ]
    first, second = PPI().read(protein_table(tmp_path, *rows), relations=PPI.relations)
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
    assert len(list(reader.read(protein_table(tmp_path, *rows)))) == 1
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
        list(PPI().read(protein_table(tmp_path, *rows, header=header)))
    assert raised.value.line == line


def test_a_document_stays_on_one_side_of_a_split(tmp_path: Path) -> None:
    rows = [f"{n},d{n // 5},True,PROTEIN1 no {n} PROTEIN2,p{n}" for n in range(50)]
    corpus = load_files([(0, protein_table(tmp_path, *rows))], "ppi")
    parts = split_rows(corpus, corpus.rows(0), (0.8, 0.2), seed=3)
    assert [len(part) for part in parts] == [40, 10]
    assert not {int(n) // 5 for n in parts[0]} & {int(n) // 5 for n in parts[1]}


def test_the_five_corpora(real_data: Path) -> None:
    files = sorted((real_data / "ppi").glob("*-train.csv.xz"))
    corpus = load_files([(0, file) for file in files], "ppi")
    assert Counter(np.asarray(corpus.relation).tolist()) == {0: 9982 - 108, 1: 3378 - 3}
