"""Formats that people have: a made-up sample of each, read as worked out by hand, and the real files that exist."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrel.data.annotations import Document
from fedrel.data.readers import reader
from fedrel.data.readers.marked import FAR, PARTED
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from tests.data import samples

Write = Callable[..., Path]


def read(name: str, path: Path, **options: Any) -> list[Any]:
    return list(reader(name).read(path, **options))


def said(one: Instance) -> tuple[str, str, str]:
    """Head, relation and tail, as the text has them."""
    words = [one.text[mention.start : mention.end] for mention in (one.head, one.tail)]
    return words[0], one.relation, words[1]


def facts(document: Document) -> list[tuple[str, str, str, str]]:
    ids = [entity.id for entity in document.entities]
    return [(ids[fact.head], fact.relation, ids[fact.tail], fact.attribute) for fact in document.facts]


def test_semeval(write: Write) -> None:
    first, second = read("semeval", write(samples.SEMEVAL))
    assert first.text == "The storm caused a flood."
    assert said(first) == ("storm", "Cause-Effect(e1,e2)", "flood")
    assert said(second) == ("letter", NA, "king")
    assert reader("semeval", none_label="none").none_label == "none"


def test_tacred(write: Write) -> None:
    first, second = read("tacred", write(samples.TACRED))
    assert said(first) == ("Ada King", "per:employee_of", "Zorb")
    assert (first.head.type, first.source, first.head.id) == ("PERSON", "news-7", "Ada King")
    assert first.tokens is not None and len(first.tokens) == 6
    assert first.text == "Ada King ( of Zorb )"
    assert said(second) == ("Zorb", NA, "Bo")


def test_spert(write: Write) -> None:
    path = write(samples.SPERT)
    assert [said(one) for one in read("spert", path)] == [
        ("Zorbine", NA, "blue ears"),
        ("blue ears", "Adverse-Effect", "Zorbine"),
    ]
    [one] = read("spert", path, pair_types=[("Effect", "Drug")])
    assert (one.head.type, one.tail.type, one.source) == ("Effect", "Drug", "7")
    [once] = read("spert", path, directions="once")
    assert said(once) == (
        "Zorbine",
        "Adverse-Effect",
        "blue ears",
    )  # the first is the head, and the relation turned


def test_conll04(write: Write) -> None:
    found = read("conll04", write(samples.CONLL04), pair_types=[("Peop", "Loc"), ("Loc", "Loc")])
    assert {one.text for one in found} == {"Ada King lived in Zorb , Hux , Old"}
    assert [said(one) for one in found] == [
        ("Ada King", "Live_In", "Zorb"),
        ("Ada King", NA, "Hux , Old"),
        ("Zorb", "Located_In", "Hux , Old"),
        ("Hux , Old", NA, "Zorb"),
    ]
    assert found[0].head.id != found[0].tail.id


def test_ddi(tmp_path: Path, write: Write) -> None:
    first, second = read("ddi", write(samples.DDI, "d1.xml"))
    assert said(first) == ("Zorbine", "mechanism", "calvex")
    assert said(second) == ("Zorbine", NA, "mirotol")
    assert (first.source, first.tail.type, first.tail.id) == ("DDI.d1", "brand", "DDI.d1.s0.e1")
    assert read("ddi", tmp_path) == [first, second]  # a folder of such files


def test_ddi_mentions_in_parts(write: Write) -> None:
    parted = samples.DDI.replace(
        '"15-20" type="brand" text="calvex"', '"8-13;15-20" type="drug" text="raises calvex"'
    )
    one = reader("ddi")
    first, _ = one.read(write(parted, "d1.xml"))
    assert said(first) == ("Zorbine", "mechanism", "raises calvex")
    assert one.problems.notes[PARTED].count == 1


def test_bioc_xml_documents_and_sentences(write: Write) -> None:
    path = write(samples.BIOC_XML)
    [document] = read("bioc", path, pair_types=[("Chemical", "Disease")])
    assert document.text == "Zorbine eases gloom. It brings on hot-head."
    assert [entity.id for entity in document.entities] == ["D01", "D91"]
    assert [mention.name for mention in document.entities[0].mentions] == ["Zorbine", "It"]
    assert facts(document) == [("D01", "CID", "D91", "Novel")]
    [sentence] = read("bioc-sentences", path, pair_types=[("Chemical", "Disease")])
    assert (sentence.text, said(sentence)) == ("It brings on hot-head.", ("It", "CID", "hot-head"))


def test_bioc_json_with_ids_in_infons(write: Write) -> None:
    [document] = read("bioc", write(samples.BIOC_JSON))
    assert facts(document) == [("D01", "Treats", "D90", "No")]
    cdr = samples.BIOC_JSON.replace('"entity1"', '"Chemical"').replace('"entity2"', '"Disease"')
    [document] = read("bioc", write(cdr.replace('"type": "Treats"', '"relation": "CID"')))
    assert facts(document) == [("D01", "CID", "D90", "No")]


def test_bioc_of_pubtator_3(write: Write) -> None:
    [document] = read("bioc", write(samples.BIOC_PUBTATOR3))
    assert facts(document) == [("MESH:D01", "Negative_Correlation", "MESH:D90", "")]
    role = {"identifier": "D90", "type": "Disease", "accession": "@DISEASE_Gloom"}
    two = json.loads(samples.BIOC_JSON)
    [relation] = two["documents"][0]["relations"]
    relation["infons"] = {"role1": {**role, "identifier": "D01"}, "role2": role, "type": "Treats"}
    relation["nodes"] = [{"refid": "0", "role": "0,1"}, {"refid": "1", "role": "1,1"}]  # they count entities
    [document] = read("bioc", write(json.dumps(two)))
    assert facts(document) == [("D01", "Treats", "D90", "")]


def test_brat_counts_windows_line_ends(tmp_path: Path) -> None:
    folder = samples.write_brat(tmp_path / "brat", "T1\tDrug 9 13\tOndo\nT2\tIll 19 24\tgloom\n")
    (folder / "note.txt").write_bytes(b"Title.\r\n\r\nOndo eases gloom.\r\n")
    with pytest.raises(UserError, match=r"expected 'Ondo' at \[9, 13\)"):
        read("brat", folder)
    (folder / "note.ann").write_text("T1\tDrug 10 14\tOndo\nT2\tIll 21 26\tgloom\n")
    assert [said(one) for one in read("brat", folder, pair_types=[("Drug", "Ill")])] == [
        ("Ondo", NA, "gloom")
    ]


def test_a_semeval_file_without_relations_is_none(write: Write) -> None:
    test_file = (
        '8001\t"The <e1>storm</e1> came with <e2>rain</e2>."\n8002\t"A <e1>hut</e1> of <e2>clay</e2>."\n'
    )
    with pytest.raises(UserError, match="expected one relation for example 8001, found '8002") as caught:
        read("semeval", write(test_file))
    assert caught.value.line == 2


def test_brat(tmp_path: Path) -> None:
    folder = samples.write_brat(tmp_path / "brat")
    one = reader("brat")
    found = list(one.read(folder, pair_types=[("Drug", "Ill")]))
    assert [said(row) for row in found] == [("Zorbine", "Treats", "gloom"), ("It", "Causes", "hot-head")]
    assert {row.source for row in found} == {"note"}
    assert found[0].head.id == "MESH:D01"
    counts = {what: note.count for what, note in one.problems.notes.items()}
    assert counts == {
        FAR: 1,
        "attributes of brat, which are not read": 1,
        "notes of annotators of brat, which are not read": 1,
    }


def test_brat_documents(tmp_path: Path) -> None:
    [document] = read("brat-documents", samples.write_brat(tmp_path / "brat"), pair_types=[("Drug", "Ill")])
    assert [entity.id for entity in document.entities] == ["MESH:D01", "MESH:D90", "MESH:D91"]
    assert len(document.entities[0].mentions) == 2  # "It" is said to be the same
    assert [fact[:3] for fact in facts(document)] == [
        ("MESH:D01", "Treats", "MESH:D90"),
        ("MESH:D01", "Causes", "MESH:D91"),
    ]
    assert document.handled["repeated_facts"] == 1


def test_brat_documents_without_ids(tmp_path: Path) -> None:
    bare = "".join(line for line in samples.BRAT_ANN.splitlines(keepends=True) if line[0] in "TR")
    [document] = read("brat-documents", samples.write_brat(tmp_path / "brat", bare))
    assert [entity.id for entity in document.entities] == ["T1", "T2", "T3", "T4"]


def test_gda(tmp_path: Path) -> None:
    first, second = read("gda", samples.write_gda(tmp_path / "gda"))
    assert [entity.id for entity in first.entities] == ["101", "D90", "D91"]
    assert (facts(first), first.pairs.tolist()) == ([("101", "GDA", "D90", "")], [[0, 1], [0, 2]])
    assert len(second.entities) == 0


COLUMNS = {
    "text": "sentence",
    "head": "drug",
    "tail": "illness",
    "relation": "label",
    "source": "ward",
    "head_id": "id",
}


def test_csv(write: Write) -> None:
    chosen = reader("csv", none_label="none")
    first, second = chosen.read(write(samples.CSV), columns=COLUMNS)
    assert said(first) == ("Zorbine", "treats", "gloom")
    assert (first.source, first.head.id, first.tail.id, first.head.name) == ("north", "1", "gloom", "zorbine")
    assert said(second) == ("calvex", NA, "hot-head")
    tabs = samples.CSV.replace('"Zorbine, they say, eases gloom."', "Zorbine eases gloom.").replace(",", "\t")
    assert said(read("csv", write(tabs), columns=COLUMNS)[0]) == ("Zorbine", "treats", "gloom")


def test_csv_with_places_or_tags(write: Write) -> None:
    placed = "text,h,t,relation,hs,he,ts,te\nAda saw Ada,Ada,Ada,saw,8,11,0,3\n"
    places = {
        "head": "h",
        "tail": "t",
        "head_start": "hs",
        "head_end": "he",
        "tail_start": "ts",
        "tail_end": "te",
    }
    [one] = read("csv", write(placed), columns=places)
    assert (one.head.start, one.tail.start) == (8, 0)
    [one] = read("csv", write('text,relation\n"<e1>Ada</e1> saw\n<e2:MAN>Bo</e2>",saw\n'))
    assert (said(one), one.tail.type) == (("Ada", "saw", "Bo"), "MAN")


def test_parquet_and_datasets(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    entities = [{"name": "Ada"}, {"name": "Bo"}]
    columns = {"text": ["Ada left Bo."] * 2, "h": entities, "t": entities[::-1], "relation": [1, 0]}
    about = {"info": {"features": {"relation": {"names": ["none", "left"], "_type": "ClassLabel"}}}}
    table = arrow.table(columns).replace_schema_metadata({"huggingface": json.dumps(about)})
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "saved").mkdir()
    with arrow.ipc.new_stream(tmp_path / "saved" / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    names = {"head": "h.name", "tail": "t.name"}
    for name, path in (("parquet", tmp_path / "a.parquet"), ("datasets", tmp_path / "saved")):
        found = list(reader(name, none_label="none").read(path, columns=names))
        assert [said(one) for one in found] == [("Ada", "left", "Bo"), ("Bo", NA, "Ada")]


@pytest.mark.parametrize(
    ("name", "path", "options", "rows", "counts"),
    [
        (
            "spert",
            "joint/ade/ade_full.json.xz",
            {"pair_types": [("Adverse-Effect", "Drug")]},
            7004,
            {"Adverse-Effect": 6821, NA: 183},
        ),
        (
            "chemprot",
            "chemprot_biocreative",
            {},
            15_773,
            {NA: 12_315, "CPR:4": 1661, "CPR:3": 665, "CPR:9": 644, "CPR:6": 293, "CPR:5": 195},
        ),
    ],
)
def test_real_sentences(
    real_data: Path, name: str, path: str, options: dict[str, Any], rows: int, counts: dict[str, int]
) -> None:
    found = read(name, real_data / path, **options)
    assert len(found) == rows
    assert Counter(one.relation for one in found) == counts


def test_real_gda(real_data: Path) -> None:
    found = read("gda", real_data / "gda")
    assert (len(found), sum(len(one.facts) for one in found)) == (1000, 1502)


def _changed(content: str, old: str, new: str) -> str:
    assert old in content, old
    return content.replace(old, new, 1)


BAD = [
    ("semeval", samples.SEMEVAL, "</e2>.", ".", 1, "no entity <e2>...</e2>"),
    ("semeval", samples.SEMEVAL, "Other\n", "\n", 5, "example 2 has no relation"),
    ("semeval", samples.SEMEVAL, '2\t"', "2 ", 5, "expected a number and a sentence in quotes"),
    (
        "tacred",
        samples.TACRED,
        '"subj_end": 1',
        '"subj_end": 9',
        2,
        "the tokens 0 to 9 of `subj` are outside",
    ),
    (
        "tacred",
        samples.TACRED,
        '"obj_start": 4',
        '"obj_start": "4"',
        2,
        "expected `obj_start` to be a whole number",
    ),
    (
        "tacred",
        samples.TACRED,
        '"relation": "per',
        '"relations": "per',
        2,
        "expected `relation` to be a string",
    ),
    ("spert", samples.SPERT, '"end": 4', '"end": 7', 1, r"tokens \[2, 7\) of entity 0 are outside"),
    ("spert", samples.SPERT, '"tail": 1', '"tail": 3', 1, "names '3', which is no mention"),
    ("conll04", samples.CONLL04, "0\t3\tLive_In", "0\t4\tLive_In", 8, "names '4', which is no mention"),
    ("conll04", samples.CONLL04, "lived\tO\tO\tO", "lived\tO", 2, "expected 9 columns"),
    ("ddi", samples.DDI, "15-20", "16-21", 5, "expected 'calvex' at the characters 16-21, found 'alvex;'"),
    ("ddi", samples.DDI, 'ddi="true"', 'ddi="yes"', 7, "expected ddi to be true or false, found 'yes'"),
    ("ddi", samples.DDI, ' type="mechanism"', "", 7, "expected <pair> to have the attribute `type`"),
    ("ddi", samples.DDI, "</document>", "", 11, "broken XML"),
    (
        "ddi",
        samples.DDI,
        "<document id",
        '<!DOCTYPE d [<!ENTITY a "b">]><document id',
        2,
        "EntitiesForbidden",
    ),
    (
        "bioc",
        samples.BIOC_JSON,
        '"offset": 14',
        '"offset": 15',
        1,
        r"expected 'gloom' at \[15, 20\), found 'loom.'",
    ),
    (
        "bioc",
        samples.BIOC_JSON,
        '"entity2": "D90"',
        '"entity2": "D99"',
        1,
        "names 'D99', which no annotation has",
    ),
    ("bioc", samples.BIOC_XML, '<node refid="2"', '<node refid="9"', 14, "names '9', which is no mention"),
    ("bioc", samples.BIOC_XML, "<offset>21", "<offset>2", 3, "a passage at 2 is before the end"),
    ("bioc", samples.BIOC_XML, "<collection>", "<collections>", 16, "broken XML"),
]


@pytest.mark.parametrize(("name", "content", "old", "new", "line", "problem"), BAD)
def test_what_cannot_be_read_is_named(
    write: Write, name: str, content: str, old: str, new: str, line: int, problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        read(name, write(_changed(content, old, new)))
    assert caught.value.line == line
    assert str(caught.value.file).endswith("corpus.txt")


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("T2\tIll 14 19", "T2\tIll 14 18", 2, r"expected 'gloom' at \[14, 18\), found 'gloo'"),
        ("T2\tIll 14 19\t", "T2\tIll 14 ", 2, "expected a mention as T1, type and places, and words"),
        ("Arg2:T4", "Arg2:T9", 6, "the relation Causes names 'T9', which is no mention"),
        ("Reference T4", "Reference T8", 10, "'MESH:D91' is said of 'T8', which is no mention"),
        ("A1\tNegated", "Q1\tNegated", 12, "expected a line of brat's"),
    ],
)
def test_brat_names_the_line(tmp_path: Path, old: str, new: str, line: int, problem: str) -> None:
    folder = samples.write_brat(tmp_path / "b", _changed(samples.BRAT_ANN, old, new))
    with pytest.raises(UserError, match=problem) as caught:
        read("brat", folder)
    assert (Path(str(caught.value.file)).name, caught.value.line) == ("note.ann", line)
    (folder / "note.txt").unlink()
    with pytest.raises(UserError, match=r"there is no note\.txt for it"):
        read("brat", folder)


@pytest.mark.parametrize(
    ("changes", "file", "problem"),
    [
        (
            {"labels": "pmid,geneId,diseaseId,label\n77,101,D99,1\n"},
            "labels.csv",
            "names 'D99', which 77 never",
        ),
        (
            {"labels": "pmid,geneId,diseaseId,label\n77,101,D90,2\n"},
            "labels.csv",
            "expected the label 0 or 1",
        ),
        ({"anns": "77\t1\t3\tZab\tGene\t101\n"}, "anns.txt", r"expected 'Zab' at \[1, 3\), found 'ab'"),
        ({"anns": "79\t0\t3\tZab\tGene\t101\n"}, "anns.txt", "there is no abstract '79'"),
        ({"abstracts": "77\n"}, "abstracts.txt", "expected a new pmid, a title and an abstract"),
    ],
)
def test_gda_names_the_file(tmp_path: Path, changes: dict[str, str], file: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        read("gda", samples.write_gda(tmp_path / "gda", **changes))
    assert Path(str(caught.value.file)).name == file and caught.value.line


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        (
            "sentence,drug",
            "sentence,drugs",
            1,
            "no column is called 'drug', found .*\nhint: name the columns in",
        ),
        ("zorbine,gloom", "zorbin,gloom", 2, "the name 'zorbin' is not in the text"),
        ("hot-head,none", "hot-head,", 3, "expected a relation, found ''"),
        ("2,Nobody took", "2,Nobody, took", 3, "expected 6 cells, as in the first line, found 7"),
        ('"Zorbine, they', '"Zorbine" they', 2, "broken CSV"),
    ],
)
def test_csv_names_the_line(write: Write, old: str, new: str, line: int, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        read("csv", write(_changed(samples.CSV, old, new)), columns=COLUMNS)
    assert caught.value.line == line
