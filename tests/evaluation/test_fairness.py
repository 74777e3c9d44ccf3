from __future__ import annotations

import pytest

from fedrel.evaluation.fairness import fairness


def test_by_hand() -> None:
    assert fairness([0.4, None, 0.8, float("nan"), 0.9]) == {
        "mean": pytest.approx(0.7),
        "spread": pytest.approx((0.14 / 3) ** 0.5),  # deviations 0.3, 0.1, 0.2
        "worst": 0.4,
        "worst_site": 0,
        "best": 0.9,
        "best_site": 4,
        "sites": 3,
    }


def test_among_equals_the_first_is_named() -> None:
    found = fairness([None, 0.5, 0.5])
    assert found is not None
    assert (found["worst_site"], found["best_site"], found["spread"]) == (1, 1, 0)


def test_nothing_measured() -> None:
    assert fairness([None, None]) is None
    assert fairness([]) is None
