"""Between formats nothing is lost unseen: what a format cannot hold is refused, or counted."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.annotations import Document, Draft, Mention
from fedrel.data.convert import _new_id, as_sentences, convert, writers
from fedrel.data.readers import READERS, reader
from fedrel.data.sentences import Instance
from fedrel.data.sentences import Mention as Entity
from fedrel.data.text import join_tokens
from fedrel.errors import UserError
from tests.data import samples
from tests.data.conftest import PUBTATOR

SENTENCES = [name for name in writers() if READERS.find(name).unit == "sentences" and name != "opennre"]
DOCUMENTS = [name for name in writers() if READERS.find(name).unit == "documents"]

words = st.text("abcdeéßñ", min_size=1, max_size=6)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """A sentence of distinct words, two of which are the entities; some formats have no ids, so names serve."""
    chosen = draw(st.lists(words, min_size=2, max_size=7, unique_by=str.lower))
    text, [tokens] = join_tokens([chosen])
    head, tail = draw(st.permutations(range(len(chosen))))[:2]
    ends = [Entity(chosen[one], chosen[one], *tokens[one]) for one in (head, tail)]
    return Instance(text, ends[0], ends[1], draw(st.sampled_from(["NA", "left", "met(e1,e2)"])))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """A document of up to four sentences whose words are entities, numbered as DocRED numbers them."""
    sentences = draw(st.lists(st.lists(words, min_size=1, max_size=5), min_size=1, max_size=4))
    text, spans = join_tokens(sentences)
    places = draw(st.permutations([span for sentence in spans for span in sentence]))
    draft = Draft()
    size = draw(st.integers(0, min(4, len(places))))
    for number, (start, end) in enumerate(places[:size]):
        draft.mention(str(number), draw(st.sampled_from(["A", "B"])), Mention(text[start:end], start, end))
    for head, tail in product(range(size), repeat=2):
        if head != tail and draw(st.booleans()):
            draft.fact(str(head), draw(st.sampled_from(["r", "s"])), str(tail))
    return draft.document(draw(st.sampled_from(["7", "doc"])), text, spans, by_place=False)


def written(name: str, rows: list[Instance] | list[Document], folder: Path) -> Path:
    path = folder / f"first.{name}"
    reader(name).write(rows, path)
    return path


@pytest.mark.parametrize(("one", "other"), product(SENTENCES, repeat=2))
@settings(max_examples=12)
@given(rows=st.lists(instances(), min_size=1, max_size=3))
def test_sentences_go_round(one: str, other: str, rows: list[Instance]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        first = written(one, rows, Path(scratch))
        done = convert(first, one, Path(scratch) / "second", other)
        assert (done.rows, done.lost) == (len(rows), {})
        back = convert(Path(scratch) / "second", other, Path(scratch) / "third", "jsonl")
        found = list(reader("jsonl").read(Path(scratch) / "third"))
        assert back.rows == len(rows)
        assert [(row.head, row.tail, row.relation, row.text) for row in found] == [
            (row.head, row.tail, row.relation, row.text) for row in rows
        ]


@pytest.mark.parametrize(("one", "other"), product(DOCUMENTS, repeat=2))
@settings(max_examples=12)
@given(row=documents())
def test_documents_go_round(one: str, other: str, row: Document) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        first = written(one, [row], Path(scratch))
        if "brat-documents" in (one, other) and not row.entities:
            return  # a document of brat's without mentions is a text without annotations
        done = convert(first, one, Path(scratch) / "second", other)
        assert (done.rows, done.lost) == (1, {})


@pytest.mark.parametrize(("one", "other"), product(SENTENCES, DOCUMENTS))
@settings(deadline=None, max_examples=8)
@given(rows=st.lists(instances(), min_size=1, max_size=3))
def test_sentences_go_through_documents(one: str, other: str, rows: list[Instance]) -> None:
    """Every sentence becomes a document and comes back; a document asks about the pair the other way round, too."""
    with tempfile.TemporaryDirectory() as scratch:
        first = written(one, rows, Path(scratch))
        done = convert(
            first, one, Path(scratch) / "second", other, lossy=other in ("docred", "brat-documents")
        )
        assert done.unit == "documents"
        if other != "docred":  # which numbers entities, and so loses all that is said by their ids
            assert set(done.lost) <= {"the entities' types"}
        back = Path(scratch) / "third"
        assert convert(Path(scratch) / "second", other, back, "jsonl").unit == "sentences"
        found = {told(row) for row in reader("jsonl").read(back)}
        assert {told(row) for row in rows} <= found
        others = found - {told(row) for row in rows}
        assert all(relation == "NA" for *_, relation in others)


def told(row: Instance) -> tuple[str, int, int, str]:
    return row.text, row.head.start, row.tail.start, row.relation


@settings(deadline=None, max_examples=50)
@given(row=documents())
def test_what_documents_lose_as_sentences_is_counted(row: Document) -> None:
    lost: Counter[str] = Counter()
    found = list(as_sentences([row], lost))
    ids = [entity.id for entity in row.entities]
    place = {entity.id: entity.mentions[0].start for entity in row.entities}
    number = {
        start: where for where, sentence in enumerate(row.sentences) for start, _ in sentence
    }  # every entity of these documents has one mention
    near = [fact for fact in row.facts if number[place[ids[fact.head]]] == number[place[ids[fact.tail]]]]
    assert lost["relations of entities that no sentence mentions together"] == len(row.facts) - len(near)
    assert {(one.head.id, one.relation, one.tail.id) for one in found if one.relation != "NA"} == {
        (ids[fact.head], fact.relation, ids[fact.tail]) for fact in near
    }
    beside = Counter(number[start] for start in place.values())
    assert lost["mentions that are in no pair"] == sum(count for count in beside.values() if count == 1)
    assert lost["sentences that mention no pair"] == sum(
        beside[where] < 2 for where in range(len(row.sentences))
    )
    for one in found:
        assert [one.text[end.start : end.end] for end in (one.head, one.tail)] == [
            one.head.name,
            one.tail.name,
        ]


def test_documents_as_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR)
    chosen = {"pair_types": [["Chemical", "Disease"]]}
    with pytest.raises(
        UserError, match=r"'jsonl' cannot hold all of it, as 1 mentions without .*\nhint: .*--lossy"
    ):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "b", "jsonl", options=chosen)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    done = convert(tmp_path / "a.txt", "pubtator", tmp_path / "b", "jsonl", options=chosen, lossy=True)
    assert done.lost == {
        "mentions without a knowledge base id, left out": 1,
        "mentions that are in no pair": 4,
        "sentences that mention no pair": 4,
    }
    found = list(reader("jsonl").read(tmp_path / "b"))
    assert [(one.head.id, one.relation, one.tail.id, one.source) for one in found] == [
        ("D01", "NA", "D90", "11"),
        ("D01", "CID", "D91", "11"),
    ]
    assert found[0].text == "Zorbine eases glomitis but brings on hot-head."


def test_instances_of_one_sentence_are_one_document(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(samples.CONLL04)
    done = convert(tmp_path / "a", "conll04", tmp_path / "b.txt", "pubtator")
    assert (done.rows, done.unit, done.lost) == (1, "documents", {})
    [document] = reader("pubtator").read(tmp_path / "b.txt")
    assert len(document.entities) == 3 and len(document.facts) == 2


def test_what_sentences_say_and_documents_cannot(tmp_path: Path) -> None:
    def line(**changes: object) -> str:
        record = {
            "text": "Ada saw Ada and Bo.",
            "h": {"id": "a", "name": "Ada", "pos": [0, 3]},
            "t": {"id": "b", "name": "Bo", "pos": [16, 18]},
            "relation": "saw",
        }
        return json.dumps({**record, **changes}) + "\n"

    other_place = {"id": "a", "name": "Ada", "pos": [8, 11]}
    cases = [
        (line(h=other_place, relation="NA") + line(), "1 pairs of single mentions"),
        (line(t={"id": "a", "name": "Ada", "pos": [8, 11]}), "1 pairs of single mentions"),
        (line() + line(h={**other_place, "type": "MAN"}), "1 types of mentions other than"),
        (line(h={"id": "a", "name": "Ada Lovelace", "pos": [0, 3]}), "1 names that are neither"),
        (line(expresses=True), "1 whether sentences state their relation"),
    ]
    for number, (content, problem) in enumerate(cases):
        (tmp_path / f"{number}.jsonl").write_text(content)
        with pytest.raises(UserError, match=problem):
            convert(tmp_path / f"{number}.jsonl", "jsonl", tmp_path / "out", "bioc")
        done = convert(tmp_path / f"{number}.jsonl", "jsonl", tmp_path / f"{number}.json", "bioc", lossy=True)
        assert any(
            what in problem
            for what in (f"{count} {name}"[: len(problem)] for name, count in done.lost.items())
        )


def test_sources_become_ids_each_once() -> None:
    taken: Counter[str] = Counter()
    assert [_new_id(name, taken) for name in ("a", "a", "b", "a:2", "a")] == ["a", "a:2", "b", "a:2:2", "a:3"]


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR.replace("11\t0\t1\tZ\tChemical\t-1\n", ""))
    with pytest.raises(
        UserError, match=r"'docred' cannot hold the entities' ids, .* of row 1\nhint: .*--lossy"
    ):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "docred")
    assert not (tmp_path / "b.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]  # nothing is left behind
    done = convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "docred", lossy=True)
    assert done.lost["the entities' ids"] == 2


def test_what_a_reader_leaves_out_is_lost(tmp_path: Path) -> None:
    folder = samples.write_brat(tmp_path / "brat")
    with pytest.raises(
        UserError, match=r"'bioc' cannot hold all of it, as 1 attributes of brat, which are not read"
    ):
        convert(folder, "brat-documents", tmp_path / "b.json", "bioc")
    done = convert(folder, "brat-documents", tmp_path / "b.json", "bioc", lossy=True)
    assert done.lost == {
        "attributes of brat, which are not read": 1,
        "notes of annotators of brat, which are not read": 1,
    }


@pytest.mark.parametrize("identity", ["../out", "/out", "a/../../out", "", ".", ".hidden", "b"])
def test_no_document_is_written_outside_its_folder_or_over_another(tmp_path: Path, identity: str) -> None:
    (tmp_path / "folder").mkdir()
    document = {"id": identity, "passages": [{"offset": 0, "text": "Ada left."}]}
    first = {"id": "b", "passages": [{"offset": 0, "text": "Bo left."}]}
    both = {"documents": [first, document] if identity else [document]}
    (tmp_path / "a.json").write_text(json.dumps(both))
    if not identity:
        return  # BioC's reader gives it a number
    with pytest.raises(UserError, match="is no name for a file, or that of another document"):
        convert(tmp_path / "a.json", "bioc", tmp_path / "folder" / "b", "brat-documents")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "folder"]


def test_options_of_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR.replace("11\tCID\tD01\tD91", "11\tCID\tD01\tD92"))
    with pytest.raises(UserError, match=r"part of the id 'D91\|D92': set id_separator to '\|'"):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "bioc", lossy=True)
    chosen = {"id_separator": "|"}
    done = convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "bioc", options=chosen, lossy=True)
    assert list(done.lost) == ["mentions without a knowledge base id, left out"]
    with pytest.raises(
        UserError, match="'pubtator' has no option 'id_seperator'\nhint: did you mean 'id_separator'"
    ):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "c", "bioc", options={"id_seperator": "|"})
    for name, value, problem in (
        ("directions", "sideways", "option directions: Input should be 'both', 'once' or 'annotated'"),
        ("pair_types", "Drug,Ill", "option pair_types: .* found 'Drug,Ill'"),
        ("pair_types", [["Drug"]], "expected pairs of types"),
    ):
        with pytest.raises(UserError, match=problem):
            convert(tmp_path / "a.txt", "pubtator", tmp_path / "c", "bioc", options={name: value})


def test_novelty_goes_along(tmp_path: Path) -> None:
    text = PUBTATOR.replace("11\tCID\tD01\tD91", "11\tCID\tD01\tD90\tNovel")
    text = text.replace("11\t0\t1\tZ\tChemical\t-1\n", "")
    (tmp_path / "a.txt").write_text(text)
    convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "bioc")
    convert(tmp_path / "b.json", "bioc", tmp_path / "c.txt", "pubtator")
    assert "11\tCID\tD01\tD90\tNovel\n" in (tmp_path / "c.txt").read_text()


def test_what_does_not_fit_is_said_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR)
    for to, problem in (
        ("ddi", "the format 'ddi' cannot be written\nhint: choose bioc"),
        ("pubtater", "no reader is called 'pubtater'"),
    ):
        with pytest.raises(UserError, match=problem):
            convert(tmp_path / "a.txt", "pubtator", tmp_path / "b", to)
    with pytest.raises(UserError, match="is there already"):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "a.txt", "bioc")


def test_any_format_of_sentences_becomes_json_lines(tmp_path: Path) -> None:
    for name in ("semeval", "tacred", "spert", "conll04", "ddi", "judged-tokens", "judged-snippets"):
        (tmp_path / f"a.{name}").write_text(samples.ONE_FILE[name])
        done = convert(tmp_path / f"a.{name}", name, tmp_path / f"{name}.jsonl", "jsonl")
        assert done.rows == len(list(reader(name).read(tmp_path / f"a.{name}"))) and not done.lost
