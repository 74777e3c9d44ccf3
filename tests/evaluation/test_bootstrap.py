"""The paired bootstrap: metrics on resamples against expanded lists, intervals against what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.bootstrap import (
    CountedUnits,
    RankedUnits,
    UnlikeUnitsError,
    difference,
    mean_of_seeds,
    units_of,
)
from fedrel.evaluation.classification import Classification
from fedrel.evaluation.document_metrics import Findings, Gold
from fedrel.evaluation.ranking import rank


def counted(correct: list[int], guesses: list[int], facts: list[int]) -> CountedUnits:
    return CountedUnits(*(np.array(numbers) for numbers in (correct, guesses, facts)))


def test_f1_of_a_resample_by_hand() -> None:
    units = counted([1, 0, 1], [1, 1, 1], [1, 1, 1])
    # unit 0 twice, unit 1 once, unit 2 never: 2 right of 3 guesses and 3 facts
    assert units.value("f1", np.array([2, 1, 0])) == pytest.approx(2 / 3)
    units = counted([1, 0], [2, 0], [1, 3])
    assert units.value("precision", np.array([1, 1])) == pytest.approx(1 / 2)
    assert units.value("recall", np.array([1, 1])) == pytest.approx(1 / 4)
    assert units.value("f1", np.array([1, 1])) == pytest.approx(2 / 6)


@given(st.integers(0, 10_000))
def test_a_ranking_once_through_its_units_is_itself(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 5, (6, 4)).astype(np.float32)  # many ties
    facts = np.argwhere(generator.random((6, 4)) < 0.3)
    ranking = rank(scores, facts)
    units = units_of(ranking.units())
    assert isinstance(units, RankedUnits)
    assert units.count == 6
    for metric in units.metrics:
        assert units.value(metric, np.ones(6, np.int64)) == ranking.metrics()[metric]


def test_a_pair_drawn_twice_counts_twice() -> None:
    # guesses from the surest: pair 0 right, pair 1 wrong, pair 1 right, pair 0 wrong
    units = RankedUnits(np.array([0, 1, 1, 0]), np.array([True, False, True, False]))
    # pair 1 twice, pair 0 never: wrong, wrong, right, right: F1 is 2*2 / (4 + 2) at the end
    assert units.value("max_f1", np.array([0, 2])) == pytest.approx(4 / 6)


def test_units_of_classification_and_documents_give_their_metrics() -> None:
    generator = np.random.default_rng(1)
    predicted, gold = generator.integers(0, 3, 40), generator.integers(0, 3, 40)
    found = Classification(predicted, gold, ["NA", "a", "b"])
    units = units_of(found.units())
    for metric in ("f1", "precision", "recall"):
        assert units.value(metric, np.ones(40, np.int64)) == pytest.approx(found.metrics()[metric])
    truth = generator.random((30, 3)) < 0.4
    document = np.repeat([4, 9, 2], 10)
    none = np.zeros(30, bool)
    findings = Findings(
        generator.random((30, 3)) < 0.4,
        Gold(document, truth, none, np.zeros((30, 3), bool)),
        ["NA", "a", "b"],
    )
    units = units_of(findings.units())
    assert units.count == 3
    assert units.value("f1", np.ones(3, np.int64)) == pytest.approx(findings.metrics()["f1"])


def test_a_run_does_not_differ_from_itself() -> None:
    units = counted([1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1])
    found = difference([units], [units], "f1", resamples=50)
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert found.sign == 0


def test_a_clear_difference_has_a_sign_and_a_small_one_has_not() -> None:
    generator = np.random.default_rng(0)
    ones = np.ones(400, np.int64)
    good, bad = ((generator.random(400) < share).astype(np.int64) for share in (0.9, 0.5))
    same = (generator.random(400) < 0.5).astype(np.int64)
    better, worse, equal = (CountedUnits(right, ones, ones) for right in (good, bad, same))
    assert difference([better], [worse], "f1", resamples=200).sign == 1
    assert difference([worse], [better], "f1", resamples=200).sign == -1
    assert difference([equal], [worse], "f1", resamples=200).sign == 0


def test_the_interval_is_about_as_wide_as_theory_says() -> None:
    generator = np.random.default_rng(2)
    ones = np.ones(1000, np.int64)
    right = (generator.random(1000) < 0.5).astype(np.int64)
    nothing = CountedUnits(np.zeros(1000, np.int64), ones, ones)
    found = difference([CountedUnits(right, ones, ones)], [nothing], "f1", resamples=1000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 1000), rel=0.1)


def test_seeds_widen_the_interval() -> None:
    ones = np.ones(1000, np.int64)
    runs = [CountedUnits((np.arange(1000) % 10 < share).astype(np.int64), ones, ones) for share in (5, 9)]
    flat = [CountedUnits((np.arange(1000) % 10 < 7).astype(np.int64), ones, ones)] * 2
    both = difference(runs, flat, "f1", resamples=300)
    assert both.mean == pytest.approx(0)
    assert both.low < -0.15 < 0.15 < both.high


def test_runs_on_other_units_are_refused() -> None:
    with pytest.raises(ValueError, match="different units"):
        difference([counted([1], [1], [1])], [counted([1, 1], [1, 1], [1, 1])], "f1")


def test_folds_of_different_sizes_are_resampled_each_by_itself() -> None:
    small, large = counted([1] * 30, [1] * 30, [1] * 30), counted([1] * 50 + [0] * 20, [1] * 70, [1] * 70)
    worse = counted([0] * 30, [1] * 30, [1] * 30)
    found = difference([small, large], [worse, large], "f1", resamples=100)
    assert (found.mean, found.low, found.high) == (0.5, 0, 1)  # both folds, the second twice, the first twice
    with pytest.raises(ValueError, match=r"different units: \[30, 70\] and \[70, 30\]"):
        difference([small, large], [large, worse], "f1")
    with pytest.raises(ValueError, match="different units"):
        difference([small, large], [worse], "f1")


def test_units_of_as_many_facts_elsewhere_are_other_units() -> None:
    with pytest.raises(UnlikeUnitsError):
        difference([counted([1, 1], [1, 1], [1, 0])], [counted([1, 1], [1, 1], [0, 1])], "f1")
    ranked = [
        RankedUnits(np.array([0, 1, 0, 1]), np.array(right, bool)) for right in ([1, 0, 0, 0], [0, 1, 0, 0])
    ]
    with pytest.raises(UnlikeUnitsError):
        difference(ranked[:1], ranked[1:], "auc")


def test_folds_that_look_alike_are_resampled_each_by_itself() -> None:
    """Half of the resamples have both folds, and half the variance, the others one of them twice."""
    ones = np.ones(4000, np.int64)
    runs = [CountedUnits(np.arange(4000) % 2, ones, ones)] * 2
    nothing = [CountedUnits(0 * ones, ones, ones)] * 2
    alike, apart = (
        difference(runs, nothing, "f1", folds=folds, resamples=2000) for folds in ((), ("1", "2"))
    )
    # .5 Phi(-sqrt(2) q) + .5 Phi(-q) = .025 at q = 1.72, where one test set has 1.96.
    assert (apart.high - apart.low) / (alike.high - alike.low) == pytest.approx(1.72 / 1.96, rel=0.04)


def test_the_mean_of_numbers_of_seeds_has_the_interval_of_drawn_seeds() -> None:
    """Of three draws from -2, 1 and 4, all are -2 with a chance of 1/27, more than the 2.5 % at either end."""
    found = mean_of_seeds([-2, 1, 4])
    assert (found.mean, found.low, found.high) == (1, -2, 4)
    assert mean_of_seeds([3, 3, 3]).sign == 1
