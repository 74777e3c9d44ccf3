"""Between formats nothing is lost unseen: what a format cannot hold is refused, or counted."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.annotations import Document, Draft, Mention
from fedrel.data.convert import convert, writers
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


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR)
    with pytest.raises(
        UserError, match=r"'docred' cannot hold the entities' ids, .* of row 1\nhint: .*--lossy"
    ):
        convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "docred")
    assert not (tmp_path / "b.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]  # nothing is left behind
    done = convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "docred", lossy=True)
    assert done.lost["the entities' ids"] == 2


def test_novelty_goes_along(tmp_path: Path) -> None:
    text = PUBTATOR.replace("11\tCID\tD01\tD91", "11\tCID\tD01\tD90\tNovel")
    (tmp_path / "a.txt").write_text(text)
    convert(tmp_path / "a.txt", "pubtator", tmp_path / "b.json", "bioc")
    convert(tmp_path / "b.json", "bioc", tmp_path / "c.txt", "pubtator")
    assert "11\tCID\tD01\tD90\tNovel\n" in (tmp_path / "c.txt").read_text()


def test_what_does_not_fit_is_said_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PUBTATOR)
    for to, problem in (
        ("jsonl", "'pubtator' has documents, and 'jsonl' holds sentences\nhint: choose bioc, brat-documents"),
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
