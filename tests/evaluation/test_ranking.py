from __future__ import annotations

import math

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.ranking import Ranking, rank

NO_FACTS = np.empty((0, 2), dtype=np.int64)

coarse = st.sampled_from([0.0, -0.0, 0.125, 0.25, 0.5, 1.0])  # many ties
fine = st.floats(width=32, allow_nan=False)
matrices = npst.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9).flatmap(
    lambda shape: st.one_of(npst.arrays(np.float32, shape, elements=e) for e in (coarse, fine))
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    scores = draw(matrices)
    pairs, relations = scores.shape
    facts = draw(st.lists(st.tuples(st.integers(0, pairs - 1), st.integers(0, relations - 1)), max_size=12))
    return scores, np.array(facts, dtype=np.int64).reshape(-1, 2), draw(st.integers(0, relations - 1))


def slow(scores: np.ndarray, facts: np.ndarray, na: int) -> dict[str, object]:
    """The same metrics, one guess at a time, from the definitions in `fedrel.evaluation.ranking`."""
    gold = {(int(p), int(r)) for p, r in facts if r != na}
    guesses = [
        (float(scores[p, r]), p, r) for p in range(scores.shape[0]) for r in range(scores.shape[1]) if r != na
    ]
    guesses.sort(key=lambda guess: -guess[0])  # Python's sort is stable
    precision, recall, f1, right, hits = [], [], [0.0], 0, []
    for n, (_, p, r) in enumerate(guesses, 1):
        hits.append((p, r) in gold)
        right += hits[-1]
        precision.append(right / n)
        recall.append(right / len(gold) if gold else 0.0)
        if precision[-1] + recall[-1]:
            f1.append(2 * precision[-1] * recall[-1] / (precision[-1] + recall[-1]))

    def area(points: int) -> float:
        xs, ys = recall[:points], precision[:points]
        return sum((xs[i] - xs[i - 1]) * (ys[i] + ys[i - 1]) / 2 for i in range(1, len(xs)))

    at = {n: sum(hits[:n]) / n for n in (100, 200, 300)}
    return {
        "precision": precision,
        "recall": recall,
        "auc": area(len(guesses)),
        "auc_2000": area(2000),
        "p_at_100": at[100],
        "p_at_200": at[200],
        "p_at_300": at[300],
        "p_mean": sum(at.values()) / 3,
        "max_f1": max(f1),
    }


def assert_same(ranking: Ranking, expected: dict[str, object]) -> None:
    assert ranking.precision.tolist() == pytest.approx(expected.pop("precision"))
    assert ranking.recall.tolist() == pytest.approx(expected.pop("recall"))
    assert ranking.metrics() == pytest.approx(expected)


def test_by_hand() -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.0, 0.3, 0.6]], dtype=np.float32)
    ranking = rank(scores, np.array([[0, 1], [1, 1], [1, 1], [0, 0]]))
    # guesses: (0,1) .8 right, (1,2) .6 wrong, (1,1) .3 right, (0,2) .1 wrong; two facts, NA left out
    assert ranking.facts == 2
    assert ranking.precision.tolist() == [1, 1 / 2, 2 / 3, 1 / 2]
    assert ranking.recall.tolist() == [1 / 2, 1 / 2, 1, 1]
    assert ranking.auc == pytest.approx(0.5 * (1 / 2 + 2 / 3) / 2)
    assert ranking.max_f1 == pytest.approx(4 / 5)
    assert [ranking.p_at(n) for n in (1, 2, 3, 4, 5, 100)] == [1, 1 / 2, 2 / 3, 1 / 2, 2 / 5, 2 / 100]


@given(problems())
def test_equals_slow_version(problem: tuple[np.ndarray, np.ndarray, int]) -> None:
    assert_same(rank(*problem), slow(*problem))


def test_auc_2000_ends_at_the_2000th_guess() -> None:
    ranking = Ranking(np.arange(3000), 3000)  # every guess is right
    assert ranking.auc == pytest.approx(2999 / 3000)
    assert ranking.auc_2000 == pytest.approx(1999 / 3000)


def test_equals_slow_version_past_2000_points() -> None:
    random = np.random.default_rng(7)
    scores = (random.random((600, 8)) ** 4).astype(np.float32).round(3)
    facts = np.argwhere(random.random(scores.shape) < scores)
    assert_same(rank(scores, facts, na=3), slow(scores, facts, 3))


@given(st.data())
def test_equals_sklearn_without_ties(data: st.DataObject) -> None:
    """Without ties each of scikit-learn's thresholds is one guess; its curve runs backwards to an anchor."""
    from sklearn import metrics as sk

    pairs, relations = data.draw(st.integers(2, 8)), data.draw(st.integers(3, 6))
    order = data.draw(st.permutations(range(pairs * relations)))
    scores = (np.array(order, dtype=np.float32) / 64).reshape(pairs, relations)
    truth = data.draw(npst.arrays(np.bool_, (pairs, relations)))
    truth[0, 1] = True
    ranking = rank(scores, np.argwhere(truth))
    precision, recall, _ = sk.precision_recall_curve(truth[:, 1:].ravel(), scores[:, 1:].ravel())
    precision, recall = precision[:-1][::-1], recall[:-1][::-1]
    assert ranking.precision == pytest.approx(precision)
    assert ranking.recall == pytest.approx(recall)
    assert ranking.auc == pytest.approx(sk.auc(recall, precision))


@given(problems())
def test_sorts_as_a_stable_argsort_does(problem: tuple[np.ndarray, np.ndarray, int]) -> None:
    scores, _, na = problem
    guesses = np.delete(scores, na, axis=1).ravel()
    columns = [r for r in range(scores.shape[1]) if r != na]
    where = [(p, r) for p in range(len(scores)) for r in columns]
    for position, guess in enumerate(np.argsort(-guesses.astype(np.float64), kind="stable")):
        assert rank(scores, np.array([where[guess]]), na).right.tolist() == [position]


@pytest.mark.parametrize("na", [0, 1])
def test_nothing_to_find_is_zero(na: int) -> None:
    only_na = np.array([[0, na]])
    for facts in (NO_FACTS, only_na):
        ranking = rank(np.ones((3, 2), dtype=np.float32), facts, na)
        assert set(ranking.metrics().values()) == {0.0}
        assert ranking.recall.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(0, 5), (4, 1)])
def test_no_guesses_is_zero(shape: tuple[int, int]) -> None:
    ranking = rank(np.ones(shape, dtype=np.float32), NO_FACTS)
    assert set(ranking.metrics().values()) == {0.0}
    assert ranking.curve().model_dump() == {"precision": [], "recall": []}


def test_one_point_has_no_area() -> None:
    ranking = rank(np.ones((1, 2), dtype=np.float32), np.array([[0, 1]]))
    assert ranking.auc == 0.0
    assert ranking.max_f1 == 1.0


@pytest.mark.parametrize(
    ("scores", "facts", "problem"),
    [
        ([[0.1, math.nan]], NO_FACTS, "NaN"),
        ([0.1, 0.2], NO_FACTS, "shape"),
        ([[0.1, 0.2]], [[0, 2]], "outside"),
        ([[0.1, 0.2]], [[1, 1]], "outside"),
        ([[0.1, 0.2]], [[-1, 1]], "outside"),
        ([[0.1, 0.2]], [1, 1], "shape"),
    ],
)
def test_refuses_what_has_no_meaning(scores: list, facts: list, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rank(np.array(scores, dtype=np.float32), np.array(facts))


def test_a_nan_in_the_na_column_is_no_guess() -> None:
    assert rank(np.array([[math.nan, 0.5]], dtype=np.float32), np.array([[0, 1]])).max_f1 == 1.0


@pytest.mark.parametrize("n", [0, -1])
def test_p_at_refuses_less_than_one(n: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Ranking(np.array([0]), 1).p_at(n)


@given(npst.arrays(np.bool_, st.integers(0, 3000)), st.integers(4, 400))
def test_curve_keeps_the_shape(right: np.ndarray, points: int) -> None:
    ranking = Ranking(np.flatnonzero(right), len(right))
    curve = ranking.curve(points)
    kept = list(zip(curve.recall, curve.precision, strict=True))
    whole = list(zip(ranking.recall.tolist(), ranking.precision.tolist(), strict=True))
    assert len(kept) <= max(points, 0)
    assert set(kept) <= set(whole)
    assert curve.recall == sorted(curve.recall)
    if whole:
        assert (kept[0], kept[-1]) == (whole[0], whole[-1])
        assert max(curve.precision) == max(ranking.precision)
        assert min(curve.precision) == min(ranking.precision)


def test_thinned_curve_has_the_same_area() -> None:
    from sklearn import metrics as sk

    random = np.random.default_rng(3)
    scores = random.random((20_000, 10), dtype=np.float32) ** 3
    ranking = rank(scores, np.argwhere(random.random(scores.shape) < scores**4))
    curve = ranking.curve()
    assert ranking.guesses == 180_000
    assert len(curve.recall) <= 1000
    assert sk.auc(curve.recall, curve.precision) == pytest.approx(ranking.auc, abs=2e-3)


def test_curve_refuses_too_few_points() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        Ranking(np.array([0]), 1).curve(3)
