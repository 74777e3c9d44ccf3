"""Models opened by `load_model`: sentences and documents, by the model's folder or its run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedrel
from fedrel.data.readers.opennre import OpenNRE
from fedrel.errors import UserError
from fedrel.inference.model import DocumentModel, Model
from fedrel.runs.train import run
from tests.conftest import tiny
from tests.documents import documents, tiny_documents, write_documents
from tests.extractors.conftest import write_encoder

MARKED = [
    "<e1>Ada</e1> was seen with <e2>Bo</e2>",
    "<e2>Bo</e2> met <e1>Ada</e1> again",
    "<e1>Bo</e1> and <e2>Ada</e2>",
]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sentences")
    run(tiny(training__rounds=1), out)
    return out


@pytest.fixture(scope="module")
def of_documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("documents")
    run(tiny_documents(base / "data", str(write_encoder(base / "bert"))), base / "run")
    return base / "run"


def test_a_run_and_its_model_folder_open_the_same_model(sentences: Path) -> None:
    for folder in (sentences, sentences / "model", str(sentences)):
        model = fedrel.load_model(folder)
        assert isinstance(model, Model) and model.unit == "sentences"
        assert model.relations[0] == "NA" and len(model.relations) == 5


def test_strings_dictionaries_and_readers_are_predicted_alike(sentences: Path, tmp_path: Path) -> None:
    model = fedrel.load_model(sentences)
    from_strings = model.predict(MARKED, threshold=0.0)
    pairs = {(one.head, one.tail): one.sentences for one in from_strings}
    assert {pair: len(found) for pair, found in pairs.items()} == {("Ada", "Bo"): 2, ("Bo", "Ada"): 1}
    texts = {one.text for one in pairs["Ada", "Bo"]}
    assert texts == {"Ada was seen with Bo", "Bo met Ada again"}

    lines = []
    for marked in MARKED:
        text = marked
        for mark in ("<e1>", "</e1>", "<e2>", "</e2>"):
            text = text.replace(mark, "")
        names = {key: marked.split(f"<{mark}>")[1].split("<")[0] for key, mark in (("h", "e1"), ("t", "e2"))}
        entities = {
            key: {"name": name, "pos": [text.index(name), text.index(name) + len(name)]}
            for key, name in names.items()
        }
        lines.append({"text": text, **entities})
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert model.predict(lines, threshold=0.0) == from_strings
    read = OpenNRE().read(tmp_path / "lines.jsonl", labelled=False)
    assert model.predict(read, threshold=0.0) == from_strings
    alone = {one.relation: one.probability for one in model.predict(MARKED[2], threshold=0.0)}
    assert alone == pytest.approx({one.relation: one.probability for one in from_strings if one.head == "Bo"})


def test_each_sentence_has_its_own_probabilities_in_order(sentences: Path) -> None:
    model = fedrel.load_model(sentences)
    assert isinstance(model, Model)
    found = model.sentence_probabilities(MARKED)
    assert found.shape == (len(MARKED), len(model.relations))
    assert found.sum(axis=1) == pytest.approx(1)
    support = {
        (one.relation, sentence.text): sentence.probability
        for one in model.predict(MARKED, threshold=0.0)
        for sentence in one.sentences
    }
    text = MARKED[1].replace("<e1>", "").replace("</e1>", "").replace("<e2>", "").replace("</e2>", "")
    for number, relation in enumerate(model.relations[1:], 1):
        assert found[1, number] == pytest.approx(support[relation, text], rel=1e-4)
    assert model.sentence_probabilities([]).shape == (0, len(model.relations))


def test_predictions_come_most_probable_first_and_above_the_threshold(sentences: Path) -> None:
    found = fedrel.load_model(sentences).predict(MARKED, threshold=0.0)
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
    middle = found[len(found) // 2].probability
    fewer = fedrel.load_model(sentences).predict(MARKED, threshold=middle)
    assert fewer == [one for one in found if one.probability >= middle]
    assert all(one.relation != "NA" for one in found)


def test_documents_are_taken_as_objects_text_and_files(of_documents: Path, tmp_path: Path) -> None:
    model = fedrel.load_model(of_documents)
    assert isinstance(model, DocumentModel) and model.unit == "documents"
    made = documents(2)
    from_file = model.predict(model.read(write_documents(tmp_path / "new.json", made)), threshold=0.0)
    assert len({one.document for one in from_file}) == 2
    assert model.predict(made, threshold=0.0) == from_file
    one = model.predict(made[0], threshold=0.0)
    assert {finding.document for finding in one} == {made[0]["title"]}


def test_pubtator_text_is_read_as_it_is(of_documents: Path) -> None:
    model = fedrel.load_model(of_documents)
    text = "7|t|zorbine helps\n7|a|It treats quax.\n7\t0\t7\tzorbine\tT\tC1\n7\t24\t28\tquax\tT\tC2\n"
    found = model.predict(text, threshold=0.0)
    assert {(one.head.name, one.tail.name) for one in found} == {("zorbine", "quax"), ("quax", "zorbine")}
    with pytest.raises(UserError, match="text 2:2: the abstract of 8 comes before its title"):
        model.predict([text, "7|t|x\n8|a|y\n"])


@pytest.mark.parametrize("change", ["weights", "config", "format", "kind"])
def test_a_damaged_model_is_named(sentences: Path, tmp_path: Path, change: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (sentences / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    about = json.loads((folder / "config.json").read_text())
    for key in ("checked", "sha256"):  # as a model of version 0.1
        about.pop(key, None)
    expected = "is not a model"
    if change == "weights":
        (folder / "weights.safetensors").write_bytes(b"no weights")
        expected = "is missing, or damaged|is not a model's weights"
    elif change == "config":
        (folder / "config.json").write_text("{}")
    elif change == "format":
        (folder / "config.json").write_text(json.dumps(about | {"format": 9}))
        expected = "has format 9, this version reads 2"
    else:
        other = about["extractor"] | {"kind": "bag-of-wurds"}
        (folder / "config.json").write_text(json.dumps(about | {"extractor": other}))
        expected = "no extractor is called 'bag-of-wurds'(?s:.*)hint: load the plug-in"
    with pytest.raises(UserError, match=expected):
        fedrel.load_model(folder)
