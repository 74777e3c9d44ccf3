"""Lazy ONE: which bags a site keeps, by hand, and what it has in common with ONE and Lazy MIL."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.methods.claims import Winners
from fedrel.methods.lazy_one import fewer
from fedrel.runs.prepare import prepare
from tests.conftest import local_session, tiny


def true(count: int, of: int) -> np.ndarray:
    return np.arange(of) < count


def test_two_shares_are_compared_by_their_standard_error():
    assert fewer(true(2, 20), true(15, 20))  # .65 apart; both together .425, so the error is .156
    assert not fewer(true(9, 20), true(12, 20))  # .15 apart, the error is .158
    assert fewer(true(8, 20), true(12, 20))  # .2 apart, the same error
    assert fewer(true(180, 400), true(240, 400))  # the same shares, but the error is .035
    assert not fewer(true(15, 20), true(2, 20))  # more, not fewer
    assert not fewer(true(0, 0), true(9, 9))
    assert not fewer(true(0, 9), true(0, 0))
    assert not fewer(true(5, 5), true(5, 5))  # an error of nothing


def site_with(won: list[int], found_elsewhere: bool) -> SimpleNamespace:
    """Twelve bags of two sentences, and one of `NA`: the second sentence of each is the better one.

    The relation is found in all bags that won and, as asked for, in all others or in none.
    """
    labels = np.array([1, 2] * 6 + [0])
    bags = Bags(np.arange(100, 126), np.arange(0, 27, 2), labels, np.arange(13))
    probability = np.full((26, 3), 0.2)
    for bag, label in enumerate(labels):
        likely = label == 0 or bag in won or found_elsewhere
        probability[2 * bag + 1, label] = 0.6 if likely else 0.3
        probability[2 * bag + 1, 0 if label else 1] = 0.25 if likely else 0.5
    return SimpleNamespace(
        bags=bags,
        related=lambda own: own.labels >= 1,
        probabilities=lambda _: probability,
        rows_at=lambda index: index + 100,
        outside=SimpleNamespace(won=lambda index: index),
        received=lambda _: Winners(np.array([2 * bag + 1 for bag in won], np.int32)),
    )


def test_bags_that_lost_are_left_out_if_the_model_finds_fewer_of_their_relations():
    lazy_one, won = method("lazy-one", {}), [0, 3, 4, 7, 9, 11]
    noisy = lazy_one.examples(site_with(won, found_elsewhere=False))
    assert noisy.keys.tolist() == [*won, 12]  # `NA` stays
    assert noisy.rows.tolist() == [100 + row for bag in (*won, 12) for row in (2 * bag, 2 * bag + 1)]  # whole
    clean = lazy_one.examples(site_with(won, found_elsewhere=True))
    assert clean.keys.tolist() == list(range(13))
    few = lazy_one.examples(site_with(list(range(11)), found_elsewhere=False))
    assert few.keys.tolist() == [*range(11), 12]  # one of one is found where eleven of eleven are
    assert len(lazy_one.examples(site_with([], found_elsewhere=False))) == 13  # nothing to compare with


def weights_after(name: str, rounds: int = 2, **settings: object) -> dict[str, np.ndarray]:
    config = tiny(method=name, **settings)
    session = local_session(config, prepare(config))
    for _ in range(rounds):
        session.next_round()
    return session.checkpoint().weights


def test_where_one_site_is_active_it_is_one():
    one, lazy_one = (weights_after(name, training__fraction=0.1) for name in ("one", "lazy-one"))
    assert all(np.array_equal(one[tensor], lazy_one[tensor]) for tensor in one)


def test_it_differs_from_lazy_mil():
    lazy_mil, lazy_one = (weights_after(name, rounds=1) for name in ("lazy-mil", "lazy-one"))
    assert any(not np.array_equal(lazy_mil[tensor], lazy_one[tensor]) for tensor in lazy_mil)


def test_bags_are_not_pooled():
    with pytest.raises(UserError, match="pooled_winners"):
        method("lazy-one", {"lazy-one": {"pooled_winners": True}})
