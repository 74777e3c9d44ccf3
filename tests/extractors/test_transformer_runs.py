"""Whole runs with a transformer, from files in GAD's form to predictions: a tiny encoder, made-up sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedrel
from fedrel.config.check import check
from fedrel.config.schema import Config
from fedrel.data.readers.gad import GAD
from fedrel.errors import UserError
from fedrel.runs.folder import MetricsFile
from fedrel.runs.records import Result, Round
from fedrel.runs.train import Watcher, run
from tests.extractors.conftest import write_encoder

SAYS = {1: "the @GENE$ level raises the risk of @DISEASE$", 0: "@DISEASE$ and the level of @GENE$ binding"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gad")
    write_encoder(folder / "encoder")
    draw = np.random.default_rng(5)
    for name, count in (("train", 120), ("test", 30)):
        header = "index\tsentence\tlabel\n" if name == "test" else ""
        rows = []
        for number in range(count):
            label = int(draw.integers(2))
            text = " ".join(["the risk of"] * int(draw.integers(3)) + [SAYS[label]])
            rows.append(f"{number}\t{text}\t{label}" if header else f"{text}\t{label}")
        (folder / f"{name}.tsv").write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    return folder


def config(files: Path, *settings: str) -> Config:
    tree = {
        "method": "feded",
        "data": {
            "corpus": "files",
            "format": "gad",
            "root": str(files),
            "train": ["train.tsv"],
            "test": ["test.tsv"],
        },
        "partition": {"sites": 5, "coordinator": 0.2},
        "extractor": {"kind": "transformer", "encoder": str(files / "encoder"), "max_length": 48},
        "training": {
            "rounds": 3,
            "fraction": 0.6,
            "epochs": 2,
            "batch_size": 4,
            "optimiser": "adamw",
            "learning_rate": 3e-3,
            "warmup": 0.1,
            "clip": 1.0,
        },
        "evaluation": {"task": "classification"},
        "engine": {"kind": "local"},
    }
    return check(Config, tree, "test").with_settings(settings)


def weights(folder: Path) -> dict[str, bytes]:
    files = (folder / "model" / "weights.safetensors", folder / "model" / "encoder/model.safetensors")
    return {name: tensor.tobytes() for file in files for name, tensor in load_file(file).items()}


def stop_after_two(one: Round) -> None:
    if one.round == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["feded", pytest.param("fedavg", marks=pytest.mark.slow)])
def test_workers_and_a_resumed_run_give_the_same_weights(files: Path, out: Path, method: str) -> None:
    recipe = [
        "training.head_learning_rate=5e-3",
        "training.linear_decay=true",
        "evaluation.tune_threshold=true",
    ]
    chosen = config(files, f"method={method}", *recipe)
    result = run(chosen, out / "local")
    workers = chosen.with_settings(["engine.kind=workers", "engine.workers=2"])
    with pytest.raises(KeyboardInterrupt):
        run(workers, out / "workers", watcher=Watcher(round_done=stop_after_two))
    assert run(workers, out / "workers", resume=True).threshold == result.threshold
    assert weights(out / "local") == weights(out / "workers")
    if method == "fedavg":  # FedED's coordinator takes fifteen steps in all
        assert result.metrics["f1"] > 0.8  # which of two sentences it is, is easily learned


def test_a_run_whose_rate_falls_to_its_end_cannot_be_made_longer(files: Path, out: Path) -> None:
    chosen = config(files, "method=fedavg", "training.rounds=1")
    run(chosen, out)
    with pytest.raises(UserError, match=r"another config \(training.rounds was 1, is 2\)"):
        run(chosen.with_settings({"training.rounds": 2}), out, resume=True)


def test_dev_and_test_are_measured_at_the_threshold_that_dev_chose(files: Path, out: Path) -> None:
    short = ("method=fedavg", "training.rounds=2")
    tuned = config(files, *short, "evaluation.tune_threshold=true", "evaluation.target_on=test")
    result = run(tuned, out / "tuned")
    rounds = MetricsFile(out / "tuned" / "metrics.jsonl").rounds()
    assert result.threshold == rounds[(result.best_round or 0) - 1].threshold
    assert all(one.threshold is not None for one in rounds)
    assert rounds[(result.best_round or 0) - 1].test == result.metrics
    plain = run(config(files, *short), out / "plain")
    assert plain.threshold is None and "threshold" not in (out / "plain/metrics.jsonl").read_text()
    assert result.dev_metric["f1"] >= plain.dev_metric["f1"]
    # Other test labels: what was chosen on dev, and so the model, stays the same.
    swapped = out / "swapped"
    swapped.mkdir()
    rows = (files / "test.tsv").read_text(encoding="utf-8").splitlines()
    turned = [row[:-1] + str(1 - int(row[-1])) for row in rows[1:]]
    (swapped / "test.tsv").write_text("\n".join([rows[0], *turned]) + "\n", encoding="utf-8")
    other = run(tuned.with_settings({"data.test": [str(swapped / "test.tsv")]}), out / "other")
    assert (other.threshold, other.best_round, other.dev_metric) == (
        result.threshold,
        result.best_round,
        result.dev_metric,
    )
    assert other.metrics != result.metrics


def test_a_threshold_is_for_one_relation(files: Path) -> None:
    with pytest.raises(UserError, match="a ranking has no threshold"):
        config(files, "evaluation.task=ranking", "evaluation.tune_threshold=true")


def test_a_second_rate_is_for_adamw_over_an_encoder(files: Path) -> None:
    with pytest.raises(UserError, match="needs optimiser"):
        config(files, "training.optimiser=sgd", "training.head_learning_rate=0.1")
    with pytest.raises(UserError, match="no pretrained encoder"):
        check(Config, {"training": {"optimiser": "adamw", "head_learning_rate": 0.1}}, "test")


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    run(config(files, "method=fedavg", "training.rounds=4"), out)
    return out


def test_the_model_predicts_and_transformers_loads_it(files: Path, trained: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    model = fedrel.load_model(trained / "model")
    instances = list(GAD().read(files / "test.tsv"))
    found = model.predict(instances)
    right = {one.head.id for one in instances if one.relation != "NA"}
    assert {one.head for one in found} == right
    tokeniser = AutoTokenizer.from_pretrained(trained / "model/encoder")
    assert {"<e1>", "</e1>", "<e2>", "</e2>"} <= set(tokeniser.get_vocab())
    encoder = AutoModel.from_pretrained(trained / "model/encoder")
    assert encoder.get_input_embeddings().weight.shape[0] == len(tokeniser)


def test_it_reads_raw_text_with_a_kb_that_has_types(trained: Path, tmp_path: Path) -> None:
    from fedrel.inference.predict import predict

    (tmp_path / "kb.tsv").write_text("g\tBRCA\tNA\td\tgout\tGENE\tDISEASE\n", encoding="utf-8")
    (tmp_path / "new.txt").write_text("the BRCA level raises the risk of gout\n", encoding="utf-8")
    predict(trained / "model", [tmp_path / "new.txt"], kb=tmp_path / "kb.tsv").write(tmp_path / "found.jsonl")
    assert '"association"' in (tmp_path / "found.jsonl").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A round in which everything is trained."""
    return run(config(files, "method=fedavg", "training.rounds=1"), tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("settings", [["extractor.frozen_layers=1"], ["extractor.lora_rank=2"]])
def test_what_is_frozen_does_not_travel(files: Path, out: Path, whole: Result, settings: list[str]) -> None:
    small = run(config(files, "method=fedavg", "training.rounds=1", *settings), out / "small")
    assert small.bytes.up < 0.8 * whole.bytes.up
    assert small.bytes.down < 0.8 * whole.bytes.down
    fedrel.load_model(out / "small" / "model").predict(GAD().read(files / "test.tsv"))


def test_bag_heads_and_lazy_mil_run_on_it(files: Path, out: Path) -> None:
    settings = ["method=lazy-mil", "extractor.pooling=max", "evaluation.task=ranking", "training.rounds=1"]
    assert run(config(files, *settings), out).metrics["auc"] > 0


def test_predictions_cross_in_few_bytes(files: Path, out: Path) -> None:
    lines = {}
    for upload in ("float16", "uint8"):
        result = run(config(files, "training.rounds=1", f"methods.feded.upload={upload}"), out / upload)
        lines[upload] = result.bytes.up
    validation = round(0.2 * 108)  # of the training sentences that dev leaves
    assert lines == {"float16": 3 * validation * 2 * 2, "uint8": 3 * validation * 2}


def test_a_label_that_the_relations_do_not_have_is_refused(files: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("the @GENE$ level and @DISEASE$\t2\n", encoding="utf-8")
    wrong = config(files, f"data.train=['{tmp_path / 'train.tsv'}']")
    with pytest.raises(UserError, match=r"train\.tsv:1"):
        run(wrong, tmp_path / "run")


def test_a_sentence_without_its_masked_entity_is_refused(files: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("the level of the gene and @DISEASE$\t1\n", encoding="utf-8")
    wrong = config(files, f"data.train=['{tmp_path / 'train.tsv'}']")
    with pytest.raises(UserError, match=r"train\.tsv:1.*GENE"):
        run(wrong, tmp_path / "run")
