from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.annotations import Document
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.relations import RelationMap
from fedrel.errors import UserError
from tests.data.conftest import PUBTATOR

Write = Callable[..., Path]
CDR = [["Chemical", "Disease"]]


def names(document: Document) -> dict[str, list[str]]:
    """What the text has at each entity's mentions."""
    return {
        entity.id: [document.text[mention.start : mention.end] for mention in entity.mentions]
        for entity in document.entities
    }


def test_entities_pairs_and_facts(write: Write) -> None:
    first, second = PubTator().read(write(PUBTATOR), pair_types=CDR)
    assert first.id == "11" and first.text.startswith("Zorbine eases glomitis but brings on hot-head. Ten")
    assert names(first) == {
        "D01": ["Zorbine", "zorbine"],
        "D90": ["glomitis", "glomitis"],
        "D91": ["hot-head", "Hot-head and blue ears"],
        "D92": ["Hot-head and blue ears"],
    }
    assert [entity.type for entity in first.entities] == ["Chemical", "Disease", "Disease", "Disease"]
    assert first.pairs.tolist() == [[0, 1], [0, 2], [0, 3]]
    assert [(fact.head, fact.tail, fact.relation) for fact in first.facts] == [(0, 2, "CID")]
    assert first.handled == {"split_tokens": 1, "unlinked_mentions": 1}
    assert len(first.sentences) == 4
    assert second.pairs.shape == (0, 2) and len(second.entities) == 1  # one entity makes no pair


def test_windows_line_ends_and_compression(write: Write, tmp_path: Path) -> None:
    plain = [names(document) for document in PubTator().read(write(PUBTATOR))]
    assert [
        names(document) for document in PubTator().read(write(PUBTATOR.replace("\n", "\r\n"), "crlf.txt"))
    ] == plain
    with gzip.open(tmp_path / "corpus.txt.gz", "wt") as file:
        file.write(PUBTATOR.replace("\n\n", "\n"))  # the blank line between documents may be missing
    assert [names(document) for document in PubTator().read(tmp_path / "corpus.txt.gz")] == plain


def test_ids_that_are_several_names_of_one_entity(write: Write) -> None:
    lines = ["1|t|Abba and cdda", "1|a|react.", "1\t0\t4\tAbba\tMet\tH:1|C:2", "1\t9\t13\tcdda\tMet\tH:3|C:4"]
    lines += ["1\tReact\tH:3|C:4\tH:1|C:2", "1\tReact\tH:3|C:4\tH:3|C:4"]
    path = write("\n".join(lines))
    (document,) = PubTator().read(path, id_separator="", directions="annotated")
    assert names(document) == {"H:1|C:2": ["Abba"], "H:3|C:4": ["cdda"]}
    assert document.pairs.tolist() == [[1, 0]]
    assert document.handled == {"self_relations": 1}
    with pytest.raises(UserError, match=r"corpus\.txt:5: .*'H:3\|C:4'(?s:.*)set id_separator to ''"):
        list(PubTator().read(path))


def test_relations_with_a_novelty_column_and_ids_joined_by_commas(write: Write) -> None:
    lines = [
        "1|t|Genes AB and variant",
        "1\t6\t8\tAB\tGene\t10,11",
        "1\t13\t20\tvariant\tVariant\tc|SUB|A|1|G",
    ]
    lines += ["1\tAssociation\t11\tc|SUB|A|1|G\tNovel"]
    path = write("\n".join(lines))
    (document,) = PubTator().read(path, id_separator=",")
    assert list(names(document)) == ["10", "11", "c|SUB|A|1|G"]
    assert [(fact.head, fact.tail) for fact in document.facts] == [(1, 2)]
    assert document.text == "Genes AB and variant"  # a title alone will do
    with pytest.raises(UserError, match=r"it is part of the id '10,11'"):
        list(PubTator().read(path, id_separator=""))


def test_facts_of_other_types_are_left_out_and_counted(write: Write) -> None:
    content = PUBTATOR.replace("11\tCID\tD01\tD91", "11\tCID\tD01\tD91\n11\tHAS\tD91\tD90\n11\tCID\tD01\tD91")
    first, _ = PubTator().read(write(content), pair_types=CDR)
    assert len(first.facts) == 1
    assert first.handled["other_types"] == 1 and first.handled["repeated_facts"] == 1


def test_other_case_or_spacing_of_a_name_is_counted(write: Write) -> None:
    first, _ = PubTator().read(write(PUBTATOR.replace("\tZorbine\t", "\tZORBINE\t")))
    assert first.handled["names_differ"] == 1
    assert first.entities[0].mentions[0].name == "ZORBINE"


def test_an_entity_of_two_types_keeps_the_first(write: Write) -> None:
    first, _ = PubTator().read(write(PUBTATOR.replace("zorbine\tChemical", "zorbine\tDrug")))
    assert first.entities[0].type == "Chemical" and first.handled["type_conflicts"] == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "11\tCID\tD01\tD91",
            "11\tCID\tD01\tD99",
            r":10: the relation CID names 'D99', which document 11 never",
        ),
        (
            "11\t14\t22",
            "11\t15\t23",
            r":4: expected 'glomitis' at \[15, 23\), found 'lomitis '(?s:.*) \[14, 22\)",
        ),
        (
            "11\t14\t22",
            "11\t914\t922",
            r":4: expected 'glomitis' at .*found the end of a text of 132 characters",
        ),
        (
            "\tglomitis\tDisease\tD90\n11\t37",
            "\tgloom\tDisease\tD90\n11\t37",
            r":4: (?s:.*)count characters from 0",
        ),
        ("11\t0\t7", "12\t0\t7", r":3: an annotation of document '12' before its title and abstract"),
        ("11|t|", "11", r":1: an annotation of document"),
        ("12|a|", "13|a|", r":13: the abstract of 13 comes before its title"),
        ("12|t|Nothing but warbleine here.\n12|a|\n", "12|t| \n12|a|\n", r":12: document 12 is empty"),
        ("11\tCID\tD01\tD91", "11\tCID\tD01", r":10: expected a mention .* or a relation .* found 3 columns"),
        ("11\t14\t22", "11\t14\t-22", r":4: expected a mention"),
        ("11\tCID", "11\tCIB", r":10: the relation 'CIB' is not in the relation map"),
        ("11\t0\t7", "11|a|Once more.\n11\t0\t7", r":3: expected one abstract of 11"),
        ("11\t0\t7\tZorbine", "11\t7\t8\t ", r":3: expected ' ' at \[7, 8\)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, old: str, new: str, message: str) -> None:
    assert old in PUBTATOR
    path = write(PUBTATOR.replace(old, new, 1))
    with pytest.raises(UserError, match=rf"corpus\.txt{message}"):
        list(PubTator().read(path, relations=RelationMap(["CID"])))


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t"), max_size=30)


@given(TEXT, TEXT, st.data())
def test_offsets_hold_in_any_text(
    tmp_path_factory: pytest.TempPathFactory, title: str, abstract: str, data: st.DataObject
) -> None:
    text = f"{title} {abstract}"
    place = st.integers(0, len(text) - 1)
    spans = [
        (start, end + 1)
        for start, end in map(sorted, data.draw(st.lists(st.tuples(place, place), max_size=5)))
        if text[start : end + 1].strip()
    ]
    rows = [
        f"1\t{start}\t{end}\t{text[start:end]}\tT\tE{number}" for number, (start, end) in enumerate(spans)
    ]
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text("\n".join([f"1|t|{title}", f"1|a|{abstract}", *rows]), encoding="utf-8", newline="")
    if not text.strip():
        with pytest.raises(UserError, match="document 1 is empty"):
            list(PubTator().read(path))
        return
    (document,) = PubTator().read(path)
    assert document.text == text
    found = {entity.id: (entity.mentions[0].start, entity.mentions[0].end) for entity in document.entities}
    assert found == {f"E{number}": span for number, span in enumerate(spans)}
    for entity in document.entities:
        for mention in entity.mentions:
            assert document.text[mention.start : mention.end] == mention.name
