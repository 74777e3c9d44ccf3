from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.data.readers.eog import EoG, left_out
from fedrel.data.relations import RelationMap
from fedrel.errors import UserError
from tests.data.conftest import eog_entity, eog_line

Write = Callable[..., Path]

TEXT = "Zorbine eases gloom .|Ca2 and zorbine bring on hot - head ."
ZORBINE = eog_entity("D1", "Chemical", [("Zorbine", 0, 1, 0), ("zorbine", 6, 7, 1)])
CALCIUM = eog_entity("D2", "Chemical", [("Ca", 4, 5, 1)])
GLOOM = eog_entity("D8", "Disease", [("gloom", 2, 3, 0)])
HEAD = eog_entity("D9", "Disease", [("hot - head", 9, 12, 1)])
PAIRS = [
    ("1:CID:2", ZORBINE, HEAD),
    ("1:NR:2", ZORBINE, GLOOM),
    ("not_include", CALCIUM, HEAD),
    ("1:NR:2", CALCIUM, GLOOM),
]


def test_entities_pairs_and_facts(write: Write) -> None:
    (document,) = EoG().read(write(eog_line("7", TEXT, PAIRS)))
    text = document.text
    assert text == "Zorbine eases gloom . Ca2 and zorbine bring on hot - head ."
    found = {entity.id: [text[m.start : m.end] for m in entity.mentions] for entity in document.entities}
    assert found == {"D1": ["Zorbine", "zorbine"], "D8": ["gloom"], "D2": ["Ca"], "D9": ["hot - head"]}
    assert document.pairs.tolist() == [[0, 1], [0, 3], [2, 1], [2, 3]]
    assert document.left_out.tolist() == [False, False, False, True]
    assert [(fact.head, fact.tail, fact.relation) for fact in document.facts] == [(0, 3, "CID")]
    assert document.handled == {"split_tokens": 1}  # Ca2
    assert [len(sentence) for sentence in document.sentences] == [4, 10]


def test_two_relations_of_a_pair_and_the_other_way_round(write: Write) -> None:
    pairs = [("1:CID:2", ZORBINE, HEAD), ("1:AID:2", ZORBINE, HEAD), ("2:CID:1", GLOOM, CALCIUM)]
    (document,) = EoG().read(write(eog_line("7", TEXT, pairs)))
    names = [entity.id for entity in document.entities]
    facts = [(names[fact.head], fact.relation, names[fact.tail]) for fact in document.facts]
    assert facts == [("D1", "CID", "D9"), ("D1", "AID", "D9"), ("D2", "CID", "D8")]
    assert len(document.pairs) == 2


def test_a_document_without_pairs_and_windows_line_ends(write: Write) -> None:
    first, second = EoG().read(write(f"1\tGloom .\r\n\r\n{eog_line('7', TEXT, PAIRS)}\r\n"))
    assert first.pairs.shape == (0, 2) and not first.entities
    assert second.entities[0].id == "D1"


def test_a_mention_over_a_sentence_end_merges_the_sentences(write: Write) -> None:
    across = eog_entity("D1", "Chemical", [("gloom . Ca2", 2, 5, 0)])
    (document,) = EoG().read(write(eog_line("7", TEXT, [("1:NR:2", across, HEAD)])))
    assert len(document.sentences) == 1 and document.handled == {"merged_sentences": 1}


def test_the_pairs_that_are_left_out(write: Write) -> None:
    assert list(left_out(write(eog_line("7", TEXT, PAIRS)))) == [("7", "D2", "D9")]


@pytest.mark.parametrize(
    ("label", "head", "message"),
    [
        ("CID", ZORBINE, r"expected a label as 1:CID:2, 1:NR:2 or not_include, found 'CID'"),
        ("1:CIB:2", ZORBINE, r"the relation 'CIB' is not in the relation map"),
        ("1:CID:2", eog_entity("D1", "C", [("Zorbine", 1, 2, 0)]), r"at tokens \[1, 2\), found 'eases'"),
        ("1:CID:2", eog_entity("D1", "C", [("Zorbine", 90, 91, 0)]), r"\[90, 91\), found 13 tokens in all"),
        ("1:CID:2", ["D1", "Zorbine", "C", "0:6", "1:7", "0:1"], r"'D1' has 1 names at '0:6' to '1:7'"),
        ("1:CID:2", ["D1", "", "C", "", "", ""], r"names the entity 'D1', which has no mention"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, label: str, head: list[str], message: str) -> None:
    path = write("\n".join(["1\tFine .", eog_line("7", TEXT, [(label, head, HEAD)])]))
    with pytest.raises(UserError, match=rf"corpus\.txt:2: .*{message}"):
        list(EoG().read(path, relations=RelationMap(["CID"])))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7\t|", "document 7 is empty"),
        ("7", "document 7 is empty"),
        ("7\tFine .\tx", "expected 17 columns a pair"),
    ],
)
def test_a_line_of_another_form(write: Write, line: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"corpus\.txt:1: {message}"):
        list(EoG().read(write(line)))
