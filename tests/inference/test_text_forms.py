"""Which files are meant, what each holds, and how documents become sentences and the other way round."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrel.data.align import read_kb
from fedrel.errors import UserError
from fedrel.inference.predict import Predicted
from fedrel.inference.text_forms import documents_in, form_of, opened, sentences_in

PUBTATOR = """7|t|Aspirin and fever.
7|a|Aspirin lowers fever. Bleeding is rare. Aspirin may cause bleeding.
7\t0\t7\tAspirin\tChemical\tD1
7\t12\t17\tfever\tDisease\tD2
7\t19\t26\tAspirin\tChemical\tD1
7\t34\t39\tfever\tDisease\tD2
7\t41\t49\tBleeding\tDisease\tD3
7\t59\t66\tAspirin\tChemical\tD1
7\t77\t85\tbleeding\tDisease\tD3
"""
RECORD = {
    "text": "Aspirin lowers fever.",
    "h": {"id": "D1", "name": "Aspirin", "pos": [0, 7]},
    "t": {"id": "D2", "name": "fever", "pos": [15, 20]},
}
MARKED = "<e1>Aspirin</e1> lowers <e2>fever</e2>.\n"
TEXT = "Aspirin lowers fever.\n\nAspirin may cause bleeding.\n"
KB = "D1\tAspirin|ASA\ttreats\tD2\tfever\tChemical\tDisease\nD1\tAspirin\tcauses\tD3\tbleeding\tChemical\tDisease\n"
PAIRS = {"pair_types": [("Chemical", "Disease")], "directions": "both", "id_separator": "|"}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (PUBTATOR, "pubtator"),
        (json.dumps(RECORD), "sentences"),
        ("\n\n" + json.dumps([{"vertexSet": []}]), "docred"),
        (json.dumps({"vertexSet": [], "sents": []}), "docred"),
        ("{broken", "sentences"),
        (MARKED, "marked"),
        (TEXT, "text"),
        ("", "text"),
    ],
)
def test_the_first_line_tells_the_form(tmp_path: Path, text: str, form: str) -> None:
    assert form_of(write(tmp_path / "file", text)) == form


def test_folders_patterns_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/.hidden", "c.txt", "d.jsonl"):
        write(tmp_path / name, name)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"from a pipe")))
    with opened([tmp_path / "b", f"{tmp_path}/*.txt", "-", tmp_path / "d.jsonl"]) as files:
        assert [one.read_text() for one in files] == ["b/1.txt", "b/2.txt", "c.txt", "from a pipe", "d.jsonl"]
    with pytest.raises(UserError, match="no file has such a name"), opened([f"{tmp_path}/*.xml"]):
        pass
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="the folder holds no file"), opened([tmp_path / "empty"]):
        pass


def test_a_document_is_read_sentence_by_sentence(tmp_path: Path) -> None:
    related = f"{PUBTATOR}7\ttreats\tD1\tD2|D8\n"  # an id that no mention has; relations are not read here
    found = list(sentences_in([write(tmp_path / "a", related)], None))
    said = {(one.text, one.head.id, one.tail.id) for one in found}
    assert ("Aspirin lowers fever.", "D1", "D2") in said and ("Aspirin lowers fever.", "D2", "D1") in said
    assert ("Aspirin may cause bleeding.", "D1", "D3") in said
    assert not any(one.text == "Bleeding is rare." for one in found)  # one entity only
    for one in found:
        assert one.text[one.head.start : one.head.end].lower() == one.head.name.lower()
        assert (one.source, one.head.type != "") == ("7", True)


@pytest.mark.parametrize("text", [json.dumps(RECORD), MARKED])
def test_a_sentence_is_a_document_with_one_pair(tmp_path: Path, text: str) -> None:
    (document,) = documents_in([write(tmp_path / "new.jsonl", text)], None, PAIRS)
    assert (document.id, document.text) == ("new:1", "Aspirin lowers fever.")
    assert document.pairs.tolist() == [[0, 1]] and document.entities[1].mentions[0].start == 15


def test_raw_text_needs_names(tmp_path: Path) -> None:
    text, kb = write(tmp_path / "note.txt", TEXT), read_kb(write(tmp_path / "kb.tsv", KB))
    for read in (sentences_in([text], None), documents_in([text], None, PAIRS)):
        with pytest.raises(UserError, match="is raw text, and it is not known which entities") as raised:
            list(read)
        assert "--kb" in raised.value.hint
    assert len({(one.head.id, one.tail.id) for one in sentences_in([text], kb)}) == 4
    (document,) = documents_in([text], kb, PAIRS)
    assert [entity.id for entity in document.entities] == ["D1", "D2", "D3"]
    assert len(document.entities[0].mentions) == 2
    assert document.pairs.tolist() == [[0, 1], [0, 2]]  # Chemical, Disease


def test_a_long_text_is_several_documents(tmp_path: Path) -> None:
    text = write(tmp_path / "note.txt", (TEXT + "x" * 9000 + "\n\n") * 5)
    found = list(documents_in([text], read_kb(write(tmp_path / "kb.tsv", KB)), PAIRS))
    assert [one.id for one in found] == ["note:1", "note:2", "note:3"]
    assert "".join(one.text for one in found) == text.read_text()


def test_the_last_line_says_what_was_done() -> None:
    found = Predicted([{}, {}], "model runs/first (lazy-mil)", 0.37, "tuned on dev", 1200, "document")
    assert found.summary(Path("facts.jsonl")) == (
        "2 facts in 1,200 documents, written to facts.jsonl; "
        "model runs/first (lazy-mil), threshold 0.37 (tuned on dev)"
    )
    nothing = Predicted([], "model m", 0.5, "given", 3, "document").summary(None)
    assert nothing.endswith("no probability is as high: --threshold sets a lower one")
    unread = Predicted([], "model m", 0.5, "given", 0, "document").summary(None)
    assert "no text mentions two of the entities" in unread
