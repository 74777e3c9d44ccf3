from __future__ import annotations

import numpy as np
import pytest
from fedrel.evaluation.fairness import at_sites, fairness

from fedrel.evaluation.classification import Classification


def test_by_hand() -> None:
    assert fairness({"a": 0.4, "b": None, "c": 0.8, "d": float("nan"), "e": 0.9}) == {
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
    assert (found["worst_site"], found["best_site"], found["spread"]) == ("b", "b", 0)


def test_nothing_measured() -> None:
    assert fairness({"a": None, "b": None}) is None
    assert fairness({}) is None


OUTCOME = Classification(
    predicted=np.array([1, 0, 2, 0, 1, 0]), gold=np.array([1, 1, 2, 0, 0, 0]), relations=["NA", "r", "s"]
)
SHARES = {"a": np.array([0, 1]), "b": np.array([2]), "c": np.array([3, 4, 5]), "d": np.array([], np.int64)}


def test_sites_by_hand() -> None:
    """Site a: one right of one said and two there, 2/3. Site c has `NA` only, site d nothing."""
    found = at_sites(OUTCOME, SHARES, "f1")
    assert found["values"] == {"a": pytest.approx(2 / 3), "b": 1.0, "c": None, "d": None}
    assert found["metric"] == "f1"
    assert found["fairness"] == fairness(found["values"])


def test_accuracy_is_measured_on_na_too() -> None:
    values = at_sites(OUTCOME, SHARES, "accuracy")["values"]
    assert values == {"a": 0.5, "b": 1.0, "c": pytest.approx(2 / 3), "d": None}


def test_a_whole_in_one_share_is_the_whole() -> None:
    for metric, value in OUTCOME.metrics().items():
        assert at_sites(OUTCOME, {"all": np.arange(6)}, metric)["values"] == {"all": value}
