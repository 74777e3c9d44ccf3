"""Runs with `data.keep_na = false`: `NA` is no class of the classifier, of messages, of metrics, of predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedrel
from fedrel.config.check import check
from fedrel.config.schema import Config
from fedrel.evaluation.heterogeneity import class_distances
from fedrel.runs.folder import read_run
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from tests.federation.test_engines import same as same_runs

SAYS = {"treats": "relieves", "causes": "brings on", "prevents": "keeps off", "NA": "and"}
RELATIONS = ["causes", "prevents", "treats"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(3)
    for part, count in (("train", 160), ("test", 40)):
        lines = []
        for number in range(count):
            relation = str(draw.choice([*RELATIONS, "NA"]))
            text = f"h{part}{number} {SAYS[relation]} t{number} today"
            h, t = f"h{part}{number}", f"t{number}"
            at = text.index(f" {t} ") + 1
            ends = {
                "h": {"id": h, "name": h, "pos": [0, len(h)]},
                "t": {"id": t, "name": t, "pos": [at, at + len(t)]},
            }
            lines.append(json.dumps({"text": text, "relation": relation, **ends}))
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def config(data: Path, **settings: object) -> Config:
    tree = {
        "data": {
            "corpus": "files",
            "root": str(data),
            "train": ["train.jsonl"],
            "test": ["test.jsonl"],
            "dev_fraction": 0.2,
            "keep_na": False,
        },
        "partition": {"kind": "dirichlet", "sites": 4, "alpha": 0.5, "coordinator": 0.1},
        "extractor": {"word_dimension": 8, "filters": 6, "bias": False, "dropout": 0.0},
        "training": {"rounds": 2, "fraction": 1.0, "epochs": 2, "batch_size": 8, "learning_rate": 0.5},
        "evaluation": {"task": "classification"},
        "engine": {"kind": "local"},
    }
    return check(Config, tree, "test").with_settings(
        {key.replace("__", "."): value for key, value in settings.items()}
    )


def test_no_sentence_and_no_class_is_na(data: Path) -> None:
    left, whole = (prepare(config(data, data__keep_na=keep)) for keep in (False, True))
    assert list(left.dataset.corpus.relations) == RELATIONS
    assert list(whole.dataset.corpus.relations) == ["NA", *RELATIONS]
    facts = [whole.dataset.corpus.fact_count(rows) for rows in (whole.dataset.test,)]
    assert [left.dataset.corpus.fact_count(rows) for rows in (left.dataset.test,)] == facts
    assert facts == [len(left.dataset.test)] and len(whole.dataset.test) > facts[0]


@pytest.mark.parametrize("method", ["fedcmc", "fedrs", "fedlc", "feded", "moon", "att-ra"])
def test_a_run_has_as_many_classes_as_relations(data: Path, out: Path, method: str) -> None:
    result = run(config(data, method=method), out)
    found, model = read_run(out), fedrel.load_model(out)
    assert model.relations == tuple(RELATIONS)
    assert model.extractor.classifier.weight.shape[0] == 3
    assert found.label_counts is not None and found.label_counts.relations == RELATIONS
    assert found.classes is not None and [one.relation for one in found.classes.per_class] == RELATIONS
    # Each sentence has a relation and is given one: what is found, is missed and is right comes to the same.
    assert result.metrics["f1"] == pytest.approx(result.metrics["accuracy"])
    assert result.metrics["precision"] == pytest.approx(result.metrics["recall"])
    found_relations = model.predict("<e1>hx</e1> relieves <e2>ty</e2> today", threshold=0.0)
    assert sorted(one.relation for one in found_relations) == RELATIONS
    assert sum(one.probability for one in found_relations) == pytest.approx(1, abs=1e-5)
    if method == "fedcmc":  # Eq. 10 and 12 over three vectors, Eq. 14 by three
        for one in found.rounds:
            assert one.class_distances and all(len(d) == 3 for d in one.class_distances.values())
            vectors = one.bytes.by_kind["ClassVectors"].down
            assert vectors == 4 * len(one.active) * 3 * 3 * 6
    if method == "feded":  # float16 of three relations for each sentence of D_v
        ready = prepare(config(data, method=method))
        sites = len(found.rounds[0].active)
        assert found.rounds[0].bytes.up == 2 * 3 * len(ready.site_data.validation) * sites


def test_engines_agree(data: Path, out: Path) -> None:
    chosen = config(data, method="fedcmc")
    run(chosen, out / "local")
    run(chosen.with_settings({"engine.kind": "workers", "engine.workers": 2}), out / "workers")
    same_runs(out / "local", out / "workers")


def test_facts_are_ranked_by_all_classes(data: Path, out: Path) -> None:
    result = run(config(data, method="lazy-mil", evaluation__task="ranking"), out)
    assert result.metrics["auc"] > 0.3
    curve = json.loads((out / "pr_curve.json").read_text(encoding="utf-8"))
    assert curve["recall"][-1] == 1


def test_a_class_of_zeros_does_not_count_in_equation_10() -> None:
    """With a row for `NA` that nothing trains, d(k,c) of the others was (sum of cosines + 0) / (C - 1)."""
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    half = 0.5**0.5
    assert class_distances(vectors) == pytest.approx([half / 2, half / 2, half])
    with_na = class_distances(np.vstack([np.zeros(2), vectors]))[1:]
    assert with_na == pytest.approx([half / 3, half / 3, 2 * half / 3])


def test_sites_count_their_own_labels(data: Path) -> None:
    ready = prepare(config(data))
    counts = ready.site_data.partition.label_counts(ready.dataset.corpus)
    assert counts.shape == (4, 3) and counts.sum() == len(ready.site_data.partition.order)
