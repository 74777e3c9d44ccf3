"""Local training: every site goes on with its own model, keeps its best round, and is tested on its own part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.inference.model import load_model
from fedrel.runs.own_models import OwnModels
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from tests.conftest import local_session, tiny

SITES = {"partition__kind": "source", "data__styles": 3, "training__fraction": 1.0}


def test_a_site_trains_as_the_only_active_site_of_fedavg_does():
    config = tiny(method="local", **SITES)
    ready = prepare(config)
    alone = local_session(config, ready)
    for number in (1, 2):
        alone._train(number)
    assert alone._fed.notes.traffic.summary()["up"] == 0
    fedavg = local_session(tiny(method="fedavg", **SITES), ready)
    fed = fedavg._fed
    for number in (1, 2):
        fed.draw(number)
        fed.notes.active = [1]
        fedavg._method.round(fed)
    own = alone._fed.model_of(1)
    assert all(np.array_equal(own[name], fed.weights[name]) for name in fed.weights)
    other = alone._fed.model_of(0)
    assert not np.array_equal(own["classifier.weight"], other["classifier.weight"])


def test_a_run_has_a_model_for_each_site_and_tests_it_there(out: Path):
    config = tiny(method="local", evaluation__task='"classification"', training__rounds=2, **SITES)
    result = run(config, out)
    assert result.sites is not None and result.sites.natural
    assert result.bytes.up == result.bytes.down == 0
    ready = prepare(config)
    corpus, test = ready.dataset.corpus, ready.dataset.test
    for name, value in result.sites.values.items():
        rows = test[[corpus.sources[n] == name for n in corpus.source[test]]]
        assert result.sites.rows[name] == len(rows)
        model = load_model(out / "model" / name)
        right = predicted = 0
        asked = []
        for row in rows:
            asked.append({"text": corpus.text_of(row)})
            for key, span in (("h", corpus.head_span[row]), ("t", corpus.tail_span[row])):
                asked[-1][key] = {"id": f"{key}{row}", "name": key, "pos": span.tolist()}
        facts = list(model.predict(asked, threshold=0.0))
        for row in rows:
            found = [one for one in facts if one.head == f"h{row}"]
            best = max((one.probability, one.relation) for one in found)
            if best[0] > 1 - sum(one.probability for one in found):
                predicted += 1
                right += best[1] == corpus.relations[int(corpus.relation[row])]
        gold = int((corpus.relation[rows] > 0).sum())
        assert value == pytest.approx(2 * right / (predicted + gold))
    with pytest.raises(UserError, match="has a model for each site"):
        load_model(out)


def test_each_site_keeps_its_best_round_on_dev():
    """Dev metrics of two sites over three rounds; the kept model is named by the round that trained it."""
    metrics = {0: [0.2, 0.6, 0.4], 1: [0.5, 0.3, 0.5]}
    own = OwnModels.__new__(OwnModels)
    state: dict[str, np.ndarray] = {}
    now = [0]
    fed = SimpleNamespace(
        state=state,
        weights={"w": np.zeros(1)},
        model_of=lambda site, kept="own": {"w": np.array(state.get(f"{kept}/{site}", now[0]))},
        keep_model=lambda site, model, kept: state.update({f"{kept}/{site}": model["w"]}),
    )
    own._fed, own._measure = fed, "f1"
    own._engine = SimpleNamespace(score=max)
    own._corpus = SimpleNamespace(fact_count=lambda rows: 1)
    own._dev = SimpleNamespace(sites=2, rows=lambda site: np.array([site]))
    task = SimpleNamespace(
        choose=lambda rows, head, score: SimpleNamespace(metrics=lambda: {"f1": metrics[rows[0]][now[0] - 1]})
    )
    for round_ in (1, 2, 3):
        now[0] = round_
        own.choose(task, "none")
    assert [int(own.kept(site)["w"]) for site in (0, 1)] == [2, 1]


def test_a_bag_at_two_sites_has_the_higher_probability():
    own = OwnModels.__new__(OwnModels)
    own._site_of = np.array([0, 1, 1, 0])
    own._corpus = SimpleNamespace()
    own.kept = lambda site: {"w": np.array([site])}
    asked = []

    def score(weights, head, bags):
        asked.append((int(weights["w"][0]), bags.rows.tolist(), bags.bounds.tolist(), bags.keys.tolist()))
        return np.array([[0.1 * (row + 1), 0.5 - 0.1 * row] for row in bags.rows[bags.bounds[:-1]]])

    own._engine = SimpleNamespace(score=score)
    bags = Bags(np.array([0, 1, 2, 3]), np.array([0, 2, 4]), np.zeros(2, np.int64), np.array([7, 8]))
    found = own.score("none", bags)
    assert asked == [(0, [0, 3], [0, 1, 2], [7, 8]), (1, [1, 2], [0, 1, 2], [7, 8])]
    assert found == pytest.approx(np.array([[0.2, 0.5], [0.4, 0.3]]))
