from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.readers.pgr import PGR
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.errors import UserError

HEADER = (
    "FILE_ID\tSENTENCE\tGENE\tPHENOTYPE\tGENE_ID\tPHENOTYPE_ID\tGENE_START_POSITION\tGENE_END_POSITION"
    "\tPHENOTYPE_START_POSITION\tPHENOTYPE_END_POSITION\tRELATION"
)
CHECKED = f"{HEADER}\tCONFIRMATION (CORRECT(C) | INCORRECT(I) | UNCERTAIN(U))"
TEXT = "in ataxia (p &lt; 0.1) ABC1 is high"


def row(relation: str = "True", *, text: str = TEXT, gene: str = "ABC1", places: str = "23\t27\t3\t9") -> str:
    return f"77\t{text}\t{gene}\tataxia\t12\tHP_34\t{places}\t{relation}"


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_offsets_count_html_entities_that_the_text_is_rid_of(tmp_path: Path) -> None:
    [one] = PGR().read(table(tmp_path, HEADER, row(), ""), relations=PGR.relations)
    head, tail = Mention("12", "ABC1", 20, 24, "GENE"), Mention("HP_34", "ataxia", 3, 9, "PHENOTYPE")
    assert one == Instance("in ataxia (p < 0.1) ABC1 is high", head, tail, "association", "77")


def test_what_was_escaped_twice(tmp_path: Path) -> None:
    text = "ABC1 &amp;alpha; in ataxia"
    [one] = PGR().read(table(tmp_path, HEADER, row(text=text, places="0\t4\t20\t26")))
    assert one.text == "ABC1 \u03b1 in ataxia"
    assert one.text[one.tail.start : one.tail.end] == "ataxia"


@pytest.mark.parametrize("relation", ["True", "TRUE", "true", "False", "FALSE"])
def test_the_case_of_the_relation_varies(tmp_path: Path, relation: str) -> None:
    [one] = PGR().read(table(tmp_path, HEADER, row(relation)))
    assert one.relation == ("association" if relation.lower() == "true" else NA)


UNCERTAIN, ELSEWHERE = (
    f"lines whose {what}, left out" for what in ("relation is uncertain", "entity is not at its offsets")
)


def test_curators_have_the_last_word(tmp_path: Path) -> None:
    verdicts = ["True\tC", "FALSE\tC", "TRUE\tI", "False\tI", "True\tU"]
    reader = PGR()
    found = [one.relation for one in reader.read(table(tmp_path, CHECKED, *map(row, verdicts)))]
    assert found == ["association", NA, NA, "association"]
    assert reader.problems.notes[UNCERTAIN].count == 1


def test_an_entity_that_is_elsewhere_is_counted(tmp_path: Path) -> None:
    reader = PGR()
    assert len(list(reader.read(table(tmp_path, HEADER, row(gene="XYZ"), row())))) == 1
    assert reader.problems.notes[ELSEWHERE].examples == ["train.tsv:2"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("77\ttoo short", "expected 11 columns, as in the header, found 2"),
        (row("perhaps"), "expected RELATION to be True or False, found 'perhaps'"),
        (
            row(places="23\t27\t3\tx"),
            "expected offsets of the phenotype .* of 35 characters, found '3' and 'x'",
        ),
        (row(places="-1\t27\t3\t9"), "expected offsets of the gene"),
        (row(places="27\t23\t3\t9"), "expected offsets of the gene"),
        (row(places="23\t99\t3\t9"), "expected offsets of the gene"),
        (row(), "'association' is not in the relation map"),
    ],
)
def test_says_which_line_is_wrong(tmp_path: Path, line: str, problem: str) -> None:
    path = table(tmp_path, HEADER, row("False"), line)
    with pytest.raises(UserError, match=rf"train\.tsv:3: .*{problem}"):
        list(PGR().read(path, relations=RelationMap([NA])))


def test_a_verdict_no_one_knows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.tsv:2: expected CONFIRMATION to be C, I or U, found 'X'"):
        list(PGR().read(table(tmp_path, CHECKED, row("True\tX"))))


def test_a_file_without_its_header(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.tsv:1: expected a header with the columns FILE_ID, GENE, "):
        list(PGR().read(table(tmp_path, row())))


pieces = st.lists(st.sampled_from(["a", " ", "&lt;", "&gt", "&amp;", "&", "x;"]), max_size=4).map("".join)


@given(pieces, pieces, pieces)
def test_entities_are_found_whatever_stands_around_them(
    tmp_path_factory: pytest.TempPathFactory, before: str, between: str, after: str
) -> None:
    text = f"{before}|GENE|{between}|ataxia|{after}"
    gene, ataxia = text.index("GENE"), text.index("ataxia")
    line = row(text=text, gene="GENE", places=f"{gene}\t{gene + 4}\t{ataxia}\t{ataxia + 6}")
    [one] = PGR().read(table(tmp_path_factory.mktemp("pgr"), HEADER, line))
    assert one.text[one.head.start : one.head.end] == "GENE"
    assert one.text[one.tail.start : one.tail.end] == "ataxia"


@pytest.mark.parametrize(
    ("name", "counts", "left_out"),
    [
        ("10_12_2018_corpus/train", {"association": 1443, NA: 2638}, 2),
        ("10_12_2018_corpus/test", {"association": 152, NA: 67}, 0),
        ("11_03_2019_corpus/train", {"association": 2480, NA: 5480}, 3),
    ],
)
def test_real_files(real_data: Path, name: str, counts: dict[str, int], left_out: int) -> None:
    reader = PGR()
    instances = list(reader.read(real_data / "pgr" / f"{name}.tsv"))
    assert Counter(one.relation for one in instances) == counts
    notes = reader.problems.notes
    assert notes.keys() == ({ELSEWHERE} if left_out else set())
    assert not left_out or notes[ELSEWHERE].count == left_out
    assert not any(mark in one.text for one in instances for mark in ("&lt;", "&gt;", "&amp;", "&quot;"))
