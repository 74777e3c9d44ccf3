from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.data.hypernyms import as_listed, by_tree, filtered, read_tree
from fedrel.data.readers.pubtator import PubTator
from fedrel.errors import UserError
from tests.data.conftest import eog_entity, eog_line

Write = Callable[..., Path]

# zorbine (D000001) brings on sudden gloom (D000012), which is a kind of gloom (D000010); frost (D000020) is apart,
# and night gloom (D000030) is a kind of sudden gloom.
TEXT = """\
5|t|zorbine, sudden gloom, gloom, frost, night gloom, warbleine
5	0	7	zorbine	Chemical	MESH:D000001
5	9	21	sudden gloom	Disease	MESH:D000012
5	23	28	gloom	Disease	MESH:D000010
5	30	35	frost	Disease	MESH:D000020
5	37	48	night gloom	Disease	MESH:D000030
5	50	59	warbleine	Chemical	MESH:D000002
5	CID	MESH:D000001	MESH:D000012
"""
TREE = "D000010\tC10.100\nD000012\tF01.500\nD000012\tC10.100.250\nD000020\tC20\nD000030\tC10.100.250.300\n"


def left_out(path: Path, rule: object) -> list[tuple[str, str]]:
    documents = PubTator().read(path, pair_types=[["Chemical", "Disease"]])
    (document,) = filtered(documents, rule)  # type: ignore[arg-type]
    ids = [entity.id.removeprefix("MESH:") for entity in document.entities]
    return [(ids[head], ids[tail]) for head, tail in document.pairs[document.left_out].tolist()]


def test_a_more_general_disease_of_the_same_chemical_is_left_out(write: Write) -> None:
    tree = read_tree(write(TREE, "tree.tsv"))
    assert tree["D000012"] == ["F01.500", "C10.100.250"]
    # Not of the other chemical, and not for a disease beside it or more special.
    assert left_out(write(TEXT), by_tree(tree)) == [("D000001", "D000010")]


def test_numbers_first_and_a_header_as_in_tables_that_go_about(write: Write) -> None:
    rows = ["Tree Number\tDesc Ui\tTerm", "C10\tD000010\tGloom", "C10.250\tD000012\tSudden Gloom"]
    assert read_tree(write("\n".join(rows), "tree.txt")) == {"D000010": ["C10"], "D000012": ["C10.250"]}


def test_meshs_own_ascii_form(write: Write) -> None:
    record = "*NEWRECORD\nRECTYPE = D\nMH = {}\nMN = {}\nMN = F01\nUI = {}\n\n"
    content = record.format("Gloom", "C10", "D000010") + "*NEWRECORD\nMH = Female\nUI = D005260\n"
    content += record.format("Sudden Gloom", "C10.250", "D000012")
    tree = read_tree(write(content, "d2024.bin"))
    assert tree == {"D000010": ["C10", "F01"], "D000012": ["C10.250", "F01"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found an empty file"),
        ("Gloom;C10\n", r":1: expected a descriptor id and a tree number, (?s:.*)mtrees files have no ids"),
        ("D000010\tC10\nD000011\n", r":2: expected a descriptor id and a tree number, found 'D000011'"),
        ("*NEWRECORD\nUI = D1\n", "no descriptor with a tree number"),
    ],
)
def test_another_file_is_refused(write: Write, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_tree(write(content, "tree"))


def test_pairs_as_eog_files_list_them(write: Write) -> None:
    def entity(identity: str) -> list[str]:
        return eog_entity(f"MESH:{identity}", "T", [("x", 0, 1, 0)])

    listed = [("D000001", "D000020"), ("D000001", "D000012"), ("D000009", "D000020")]
    pairs = [("not_include", entity(head), entity(tail)) for head, tail in listed]
    lines = [
        eog_line("5", "x", pairs),
        eog_line("6", "x", [("not_include", entity("D000001"), entity("D000030"))]),
    ]
    rule = as_listed([write("\n".join(lines), "eog.data")])
    # The second is a fact here and stays; the third names nothing in the document; the last is another document's.
    assert left_out(write(TEXT), rule) == [("D000001", "D000020")]
