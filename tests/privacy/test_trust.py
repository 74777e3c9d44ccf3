"""Bounds on single updates: their norm, their weight, their wins; and which updates stand out by their norm."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.privacy.trust import (
    Moves,
    Norms,
    Standing,
    bound_factors,
    capped,
    described,
    most_wins,
    ranks,
    shortened,
)
from fedrel.tensors.weights import Rows, dense
from tests.privacy.test_robust_rules import tables


def test_an_update_beyond_the_bound_gets_as_long_as_the_bound():
    assert bound_factors({0: 1.0, 1: 2.0, 2: 8.0, 3: 0.0}, 2.0) == {0: 1.0, 1: 1.0, 2: 3 / 8, 3: 1.0}
    assert bound_factors({4: 7.0}, 1.0) == {4: 1.0}


def test_a_shortened_update_is_nearer_to_the_start_in_every_row():
    base, (update, *_) = tables(3)
    norms = Norms(base)
    short = shortened(base, update, 0.25)
    assert norms.of(short) == pytest.approx(0.25 * norms.of(update), rel=1e-5)
    one, other = dense(base, short), dense(base, update)
    for name in base:
        np.testing.assert_allclose(one[name], base[name] + 0.25 * (other[name] - base[name]), atol=1e-6)
    assert shortened(base, update, 1.0) is update


def test_nobody_counts_for_more_than_the_cap():
    assert capped([10, 10, 10], 1) == [10, 10, 10]
    assert capped([1, 10**12], 1) == [1, 1]
    assert capped([5], 2) == [5]
    assert capped([], 2) == []
    generator = np.random.default_rng(3)
    for _ in range(50):
        before = generator.integers(1, 10**9, 12).tolist()
        cap = float(generator.uniform(1, 4))
        after = capped(before, cap)
        assert all(0 < new <= old for new, old in zip(after, before, strict=True))
        assert max(after) <= max(cap * np.mean(after) + 1, min(before))


def test_a_site_that_claims_everything_does_not_raise_the_cap():
    honest = most_wins([100, 100, 100, 100], triples=300, cap=2)
    assert honest == 150
    assert most_wins([100, 100, 100, 10_000], triples=10_000, cap=2) == 250  # not 5,000
    assert most_wins([1, 1], triples=1, cap=1) == 1


def test_ranks_do_not_depend_on_how_high_the_values_are():
    values = np.array([0.2, 0.9, 0.5], np.float32)
    assert ranks(values).tolist() == ranks(values / 100).tolist() == [1 / 6, 5 / 6, 1 / 2]
    assert ranks(np.ones(4)).tolist() == [0.5] * 4
    assert ranks(np.zeros(0)).tolist() == []


def test_who_is_left_out_again_and_again_takes_no_part_any_more():
    state = {}
    for left_out in ([0], [0, 2], [2], [], [2]):
        state |= Standing(state, 4).with_round([0, 1, 2], left_out)
    now = Standing(state, 4)
    assert now.excluded(2) == [2]  # site 0 was left out twice as well, in fewer than half of its rounds
    assert now.excluded(4) == now.excluded(0) == []
    assert Standing({}, 4).excluded(1) == []


def test_the_norm_of_rows_is_that_of_the_dense_update():
    generator = np.random.default_rng(1)
    base = {
        "table": generator.normal(size=(300, 50)).astype(np.float32),
        "filters": generator.normal(size=(20, 3, 7)).astype(np.float32),
        "bias": np.zeros(0, np.float32),
    }
    index = np.sort(generator.choice(300, 40, replace=False)).astype(np.int32)
    rows = Rows(index, generator.normal(size=(40, 50)).astype(np.float32), 0.9)
    update = {"table": rows, "filters": base["filters"] + np.float32(0.5), "bias": base["bias"]}
    full = dense(base, update)
    expected = np.sqrt(sum(np.square(full[name].astype(float) - base[name]).sum() for name in base))
    norms = Norms(base)
    assert norms.of(update) == pytest.approx(expected, rel=1e-6)
    assert norms.of(full) == pytest.approx(expected, rel=1e-6)
    assert norms.of(base) == 0


def moves(*pairs: tuple[float, int]) -> Moves:
    found = Moves()
    for site, (norm, examples) in enumerate(pairs):
        found.add(site, norm, examples)
    return found


def test_an_update_stands_out_if_neither_the_others_nor_its_examples_explain_its_norm():
    found = moves((1, 100), (1.2, 100), (0.9, 100), (20, 100), (8, 1000))
    # The median norm is 1.2, of the examples 100: site 4 with ten times as many may have 12.
    assert found.explained() == pytest.approx({0: 1.2, 1: 1.2, 2: 1.2, 3: 1.2, 4: 12.0})
    assert found.stood_out() == {3: 16.7}
    assert not found.diverges(12 * 9.9)
    assert found.diverges(12 * 10.1)


def test_one_update_or_none_or_no_move_at_all_stands_out():
    assert moves((5, 10)).stood_out() == moves().stood_out() == moves((0, 1), (0, 1)).stood_out() == {}
    assert not moves().diverges(1.0)
    assert not moves((0, 1), (0, 1)).diverges(0.0)


def test_those_that_stood_out_are_named_with_the_factor_and_no_others():
    assert described({3: 16.7, 1: 1000.0}, {1: "site-1", 3: "site-3", 2: "site-2"}) == (
        "site-3's update is 17 times, site-1's update is 1,000 times as long as the round's others explain"
    )
    assert described({}, {}) == ""
