"""Runs on documents from the command line: what they leave, what predicts from them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedrel
from fedrel import load_model
from fedrel.cli.main import app
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import dataset
from fedrel.data.partition import divide
from fedrel.data.partition.entropy import by_entropy, structural_entropy
from fedrel.errors import UserError
from fedrel.extractors.findings import SHOWN
from fedrel.inference.model import DocumentModel
from fedrel.runs.train import run
from tests.documents import documents, tiny_documents, write_documents
from tests.extractors.conftest import write_encoder

LONELY = """\
5|t|Nothing but zorbine here.
5|a|
5	12	19	zorbine	T	C1
"""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, encoder: str) -> Path:
    """A run on made-up documents, by structural entropy."""
    base = tmp_path_factory.mktemp("documents")
    config = tiny_documents(base / "data", encoder, "partition.kind=entropy", "extractor.window=48")
    (base / "config.toml").write_text(config.to_toml())
    fedrel.run(config, base / "run")
    return base


def invoke(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def predicted(folder: Path, *inputs: Path, threshold: float = 0.0) -> list[dict]:
    out = inputs[0].with_suffix(".out")
    invoke("predict", folder / "run" / "model", *inputs, "--threshold", str(threshold), "--out", out)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_run_leaves_metrics_sites_relations_and_a_report(folder: Path) -> None:
    result = json.loads((folder / "run" / "result.json").read_text())
    assert list(result["metrics"]) == ["precision", "recall", "f1", "intra_f1", "inter_f1", "ign_f1"]
    assert result["dev_metric"].keys() == {"f1"} and len(result["sites"]["values"]) == 3
    classes = json.loads((folder / "run" / "classes.json").read_text())
    assert [row["relation"] for row in classes["per_class"]] == ["r0", "r1"]
    counts = json.loads((folder / "run" / "label_counts.json").read_text())
    assert counts["relations"] == ["NA", "r0", "r1"] and np.sum(counts["counts"]) > 100
    assert (folder / "run" / "report.html").exists()


def test_predictions_have_entities_and_evidence_in_the_text(folder: Path, tmp_path: Path) -> None:
    made = documents(3, seed=9)
    found = predicted(folder, write_documents(tmp_path / "new.json", made))
    asked = sum(len(one["vertexSet"]) * (len(one["vertexSet"]) - 1) for one in made)
    assert len(found) == 2 * asked
    assert [one["probability"] for one in found] == sorted(
        (one["probability"] for one in found), reverse=True
    )
    texts = {one["title"]: " ".join(token for sent in one["sents"] for token in sent) for one in made}
    for one in found:
        text = texts[one["document"]]
        assert {one["relation"]} <= {"r0", "r1"} and one["h"]["id"] != one["t"]["id"]
        for token in one["evidence"]:
            assert text[token["start"] : token["end"]] == token["text"]
        for start, end in one["h"]["mentions"]:
            assert text[start:end].startswith(one["h"]["name"][0])
        shares = [token["share"] for token in one["evidence"]]
        assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_pubtator_is_read_too_and_its_own_relations_are_not_looked_at(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text(
        "5|t|Ab raises cde.\n5|a|\n5\t0\t2\tAb\tT\tC1\n5\t10\t13\tcde\tT\tC2\n5\tunheard\tC1\tC2\n"
    )
    found = predicted(folder, path)
    assert {(one["h"]["id"], one["relation"], one["t"]["id"]) for one in found} == {
        (head, relation, tail) for head, tail in (("C1", "C2"), ("C2", "C1")) for relation in ("r0", "r1")
    }


def test_a_report_marks_what_was_found(folder: Path, tmp_path: Path) -> None:
    path = write_documents(tmp_path / "new.json", documents(2, seed=9))
    page = tmp_path / "page.html"
    options = ("--threshold", "0", "--out", tmp_path / "found", "--report", page)
    invoke("predict", folder / "run" / "model", path, *options)
    text = page.read_text(encoding="utf-8")
    assert text.count('<article class="document"') == 2
    found = (tmp_path / "found").read_text().splitlines()
    assert text.count('<strong class="relation"') == len(found) > 2 * SHOWN  # all of them


def test_a_document_with_one_entity_has_nothing_to_find(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "lonely.txt"
    path.write_text(LONELY)
    assert predicted(folder, path) == []


def test_an_empty_document_is_refused_with_its_line(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text(LONELY + "\n6|t|\n6|a|\n")
    with pytest.raises(UserError, match=r"empty\.txt:5.*document 6 is empty"):
        predicted(folder, path)


def test_a_document_of_20000_tokens_is_read_in_windows(folder: Path, tmp_path: Path) -> None:
    (one,) = documents(1, seed=3, words=(20_000, 20_000), entities=(3, 3))
    whole = predicted(folder, write_documents(tmp_path / "long.json", [one]))
    assert len(whole) == 2 * len(one["vertexSet"]) * (len(one["vertexSet"]) - 1)
    assert all(0 <= finding["probability"] <= 1 for finding in whole)


@pytest.mark.slow
def test_training_on_a_document_of_20000_tokens(tmp_path: Path, encoder: str) -> None:
    config = tiny_documents(tmp_path / "data", encoder, "training.rounds=1", "partition.sites=1", count=4)
    made = [*documents(4), *documents(1, seed=3, words=(20_000, 20_000), entities=(3, 3))]
    write_documents(tmp_path / "data" / "pool.json", made)
    config = config.with_settings(["data.fractions=[0.6, 0.2, 0.2]", "data.split_seed=1"])
    assert np.isfinite(list(run(config, tmp_path / "run").metrics.values())).all()


def test_partition_draws_the_entropies(folder: Path, tmp_path: Path) -> None:
    output = invoke("partition", folder / "config.toml", "--plot", tmp_path / "entropy.png")
    assert "site-2" in output and (tmp_path / "entropy.png").stat().st_size > 1000


def test_the_authors_entropy_can_be_asked_for(folder: Path) -> None:
    settings = ["partition.entropy=released", "partition.sentence_edges=adjacent"]
    config = load_config(folder / "config.toml", settings)
    data = dataset(config.data)
    assert isinstance(data.corpus, DocumentCorpus)
    released = structural_entropy(data.corpus, sentence_edges="adjacent", measure="released")
    expected = by_entropy(data.train, released[data.train], 3)
    found = divide(config.partition, data.corpus, data.train, config.seed)
    assert [found.rows(site).tolist() for site in range(3)] == [
        expected.rows(site).tolist() for site in range(3)
    ]


def test_models_are_opened_as_what_they_are(folder: Path) -> None:
    for path in (folder / "run" / "model", folder / "run"):
        model = load_model(path)
        assert isinstance(model, DocumentModel) and model.relations == ("NA", "r0", "r1")


def test_raw_text_is_read_with_the_names_of_a_knowledge_base(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kb.tsv").write_text("C1\tzorbine\tr0\tC2\tfever\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one.txt").write_text("Zorbine was given.\n\nThe fever went.\n")
    text = ("--kb", tmp_path / "kb.tsv", "--threshold", "0", "--out", tmp_path / "found")
    said = invoke("predict", folder / "run", tmp_path / "notes", *text)
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert {(one["document"], one["h"]["id"], one["t"]["id"]) for one in found} == {
        ("one", "C1", "C2"),
        ("one", "C2", "C1"),
    }
    assert {one["relation"] for one in found if one["known"]} == {"r0"}
    assert f"4 facts in 1 document, written to {tmp_path / 'found'}; model {folder / 'run'} (fedavg)" in said
    assert said.endswith("threshold 0 (given)\n")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("evaluation.task=classification", 'set evaluation.task = "documents"'),
        ("evaluation.metric=auc", "choose f1, ign_f1, intra_f1, inter_f1"),
        ("partition.kind=dirichlet", "choose 'entropy', 'iid', 'quantity' or 'source'"),
        ("data.directions=once", "pubtator, spert, not for 'docred'"),
        ("extractor.windows=32", "unknown key 'extractor.windows'"),
        ("data.pol=[]", "unknown key 'data.pol'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder: Path, setting: str, problem: str) -> None:
    with pytest.raises(UserError) as error:
        load_config(folder / "config.toml", [setting])
    assert problem in str(error.value)


def test_documents_that_state_no_relation_are_refused(tmp_path: Path, encoder: str) -> None:
    config: Config = tiny_documents(tmp_path / "data", encoder)
    write_documents(tmp_path / "data" / "pool.json", [{**one, "labels": []} for one in documents(9)])
    with pytest.raises(UserError, match="state no relation"):
        run(config, tmp_path / "run")
