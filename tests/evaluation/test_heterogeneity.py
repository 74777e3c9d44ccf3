from __future__ import annotations

import warnings
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.heterogeneity import (
    across_sites,
    class_distances,
    global_distances,
    label_distances,
    observe,
    spearman,
    within_sites,
)

NAN = float("nan")


def test_label_distances_by_hand() -> None:
    counts = np.array([[6, 2], [0, 2], [0, 0]])  # the whole is 0.6, 0.4
    np.testing.assert_allclose(label_distances(counts), [0.15 + 0.15, 0.6 + 0.6, NAN])


def test_label_distances_have_zero_and_two_as_bounds() -> None:
    assert label_distances(np.array([[3, 9], [1, 3]])).tolist() == [0, 0]
    many = np.eye(1000, dtype=int)
    np.testing.assert_allclose(label_distances(many), 2 * (1 - 1 / 1000))
    assert np.isnan(label_distances(np.zeros((2, 3), int))).all()


def test_class_distances_by_hand() -> None:
    vectors = np.array([[2, 0], [0, 5], [1, 1], [-3, 0]], np.float32)
    half = np.sqrt(0.5)
    expected = [(0 + half - 1) / 3, (0 + half + 0) / 3, (half + half - half) / 3, (-1 + 0 - half) / 3]
    np.testing.assert_allclose(class_distances(vectors), expected, atol=1e-12)


@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 1000))
def test_class_distances_are_definition_1(classes: int, dimension: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(classes, dimension))
    slow = [
        np.mean(
            [
                vectors[c] @ vectors[i] / (np.linalg.norm(vectors[c]) * np.linalg.norm(vectors[i]))
                for i in range(classes)
                if i != c
            ]
            or [0.0]
        )
        for c in range(classes)
    ]
    np.testing.assert_allclose(class_distances(vectors), slow, atol=1e-12)


def test_a_vector_of_zeros_is_similar_to_none() -> None:
    assert class_distances(np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("seed", range(20))
def test_of_two_classes_both_are_equally_far_to_the_bit(seed: int) -> None:
    one, other = class_distances(np.random.default_rng(seed).normal(size=(2, 345)).astype(np.float32))
    assert one == other


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-2, 2, width=16)), max_size=30))
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, float]]) -> None:
    from scipy import stats

    one, other = np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of constant input, and of too little
        expected = stats.spearmanr(one, other).statistic if len(pairs) > 1 else NAN
    np.testing.assert_allclose(spearman(one, other), expected, atol=1e-12)


def test_spearman_by_hand() -> None:
    assert spearman(np.array([1, 5, 9]), np.array([0.1, 0.2, 7.0])) == 1
    assert spearman(np.array([1, 5, 9]), np.array([3, 2, 1])) == -1
    # Ranks 1.5, 1.5, 3 against 1, 2, 3: covariance 1.5, sums of squares 1.5 and 2.
    assert spearman(np.array([4, 4, 6]), np.array([1, 2, 3])) == pytest.approx(1.5 / np.sqrt(1.5 * 2))
    assert np.isnan(spearman(np.array([4, 4, 4]), np.array([1, 2, 3])))
    assert np.isnan(spearman(np.array([1.0, NAN]), np.array([1, 2])))


COUNTS = np.array([[8, 2, 0], [0, 5, 15], [1, 0, 9]])
LOCAL = np.array([[0.1, 0.4, 0.9], [0.8, 0.5, 0.1], [0.5, 0.7, 0.2]])  # the more, the smaller


def test_observations_1_and_3_by_hand() -> None:
    assert within_sites(LOCAL, COUNTS).tolist() == [-1, -1, -1]
    # Class 1: 2, 5, 0 of it against 0.4, 0.5, 0.7: ranks 2, 3, 1 against 1, 2, 3.
    assert across_sites(LOCAL, COUNTS).tolist() == [-1, -0.5, -1]


def test_sites_that_were_not_active_do_not_count() -> None:
    partly = LOCAL.copy()
    partly[2] = NAN
    np.testing.assert_equal(within_sites(partly, COUNTS), [-1, -1, NAN])
    assert across_sites(partly, COUNTS).tolist() == [-1, 1, -1]
    np.testing.assert_allclose(global_distances(partly, COUNTS), (10 * LOCAL[0] + 20 * LOCAL[1]) / 30)
    assert np.isnan(global_distances(np.full((3, 3), NAN), COUNTS)).all()


def test_global_distances_by_hand() -> None:
    np.testing.assert_allclose(global_distances(LOCAL, COUNTS), [22 / 40, 21 / 40, 13 / 40])


def test_the_three_observations_over_rounds() -> None:
    """Sites that go from their own labels to the whole's: the totals 9, 7, 24 ask for d(1) > d(0) > d(2)."""
    whole = np.array([0.5, 0.6, 0.1])
    rounds = np.stack([(1 - t) * LOCAL + t * whole for t in (0.0, 0.5, 0.9)])
    seen = observe(rounds, COUNTS)
    assert seen.own[0] == -1 < seen.own[2]
    assert seen.whole.tolist() == [pytest.approx(-0.5), pytest.approx(-1), pytest.approx(-1)]
    assert seen.gap[0] > seen.gap[1] > seen.gap[2]
    np.testing.assert_allclose(seen.gap / seen.gap[0], [1, 0.5, 0.1])
    assert seen.closing == -1
    np.testing.assert_allclose(seen.across, -2.5 / 3)


def test_a_class_that_no_site_has_is_left_out_of_the_observations() -> None:
    wider = observe(np.insert(LOCAL, 1, 5.0, axis=1)[None], np.insert(COUNTS, 1, 0, axis=1))
    np.testing.assert_equal(asdict(wider), asdict(observe(LOCAL[None], COUNTS)))


def test_of_two_classes_a_site_has_nothing_to_rank() -> None:
    counts = np.array([[9, 1], [2, 6], [5, 5]])
    seen = observe(np.array([[[0.1, 0.1], [0.3, 0.3], [0.2, 0.2]]]), counts)
    assert np.isnan(seen.own).all()
    assert np.isnan(seen.whole).all()
    assert seen.across.tolist() == [0]  # one class agrees as much as the other disagrees
