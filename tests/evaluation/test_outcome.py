from __future__ import annotations

import numpy as np
import pytest

from fedrel.evaluation.classification import Classification
from fedrel.evaluation.outcome import fairness
from fedrel.evaluation.ranking import rank


def test_by_hand() -> None:
    found = fairness({"a": 0.4, "b": None, "c": 0.8, "d": float("nan"), "e": 0.9})
    assert found is not None
    assert found.model_dump() == {
        "mean": pytest.approx(0.7),
        "spread": pytest.approx((0.14 / 3) ** 0.5),  # deviations 0.3, 0.1, 0.2
        "worst": 0.4,
        "worst_site": "a",
        "best": 0.9,
        "best_site": "e",
        "measured": 3,
    }


def test_among_equals_the_first_is_named() -> None:
    found = fairness({"a": None, "b": 0.5, "c": 0.5})
    assert found is not None
    assert (found.worst_site, found.best_site, found.spread) == ("b", "b", 0)


def test_nothing_measured() -> None:
    assert fairness({"a": None, "b": None}) is None
    assert fairness({}) is None


OUTCOME = Classification(
    predicted=np.array([1, 0, 2, 0, 1, 0]), gold=np.array([1, 1, 2, 0, 0, 0]), relations=["NA", "r", "s"]
)
SHARES = {"a": np.array([0, 1]), "b": np.array([2]), "c": np.array([3, 4, 5]), "d": np.array([], np.int64)}


def test_sites_by_hand() -> None:
    """Site a: one right of one said and two there, 2/3. Site c has `NA` only, site d nothing."""
    found = OUTCOME.at_sites(SHARES, "f1")
    assert found.values == {"a": pytest.approx(2 / 3), "b": 1.0, "c": None, "d": None}
    assert found.metric == "f1"
    assert found.fairness == fairness(found.values)


def test_accuracy_is_measured_on_na_too() -> None:
    values = OUTCOME.at_sites(SHARES, "accuracy").values
    assert values == {"a": 0.5, "b": 1.0, "c": pytest.approx(2 / 3), "d": None}


def test_a_whole_in_one_share_is_the_whole() -> None:
    for metric, value in OUTCOME.metrics().items():
        assert OUTCOME.at_sites({"all": np.arange(6)}, metric).values == {"all": value}


def test_shares_are_rows_of_the_corpus() -> None:
    """The same sentences, in rows 10 to 60 and out of order."""
    rows = np.array([50, 10, 30, 60, 20, 40])
    moved = Classification(OUTCOME.predicted, OUTCOME.gold, OUTCOME.relations, rows)
    shares = {site: rows[places] for site, places in SHARES.items()}
    for metric in ("f1", "accuracy"):
        assert moved.at_sites(shares, metric) == OUTCOME.at_sites(SHARES, metric)


def test_a_ranking_is_not_measured_at_sites() -> None:
    ranking = rank(np.ones((1, 2), dtype=np.float32), np.array([[0, 1]]))
    assert ranking.at_sites({"a": np.array([0])}, "auc") is None
    assert list(ranking.files()) == ["pr_curve.json"]
    assert list(OUTCOME.files()) == ["classes.json"]
