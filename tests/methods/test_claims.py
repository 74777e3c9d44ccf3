"""Lazy MIL's claims: which are refused, with the reason, and what their values tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.federation.messages import RefusedError
from fedrel.methods.claims import (
    Claims,
    KeyedClaims,
    PooledWinners,
    Winners,
    check_claims,
    levelled,
    winners,
    with_decoys,
)


def claims(triple, index):
    return Claims(np.array(triple, np.int32), np.zeros(len(index), np.float32), np.array(index, np.int32))


def keyed(digests, index):
    digest = np.array(digests, np.uint8)[:, None].repeat(32, axis=1)
    return KeyedClaims(digest, np.zeros(len(index), np.float32), np.array(index, np.int32))


@pytest.mark.parametrize(
    "possible", [claims([4, 0], [0, 2]), claims([], []), keyed([7, 8], [2, 1]), claims([4], [2])]
)
def test_claims_on_what_is_there_are_taken(possible):
    check_claims(possible, sentences=3, triples=5)


@pytest.mark.parametrize(
    ("impossible", "reason"),
    [
        (claims([0, 1], [0, 3]), "claims sentence 3, but holds 3 sentences"),
        (claims([5, 1], [0, 1]), "claims triple 5, but the KB has 5 triples"),
        (claims([1, 1], [0, 1]), "claims a triple twice"),
        (claims([1, 2], [1, 1]), "claims a sentence twice"),
        (keyed([7, 8], [0, 3]), "claims sentence 3, but holds 3 sentences"),
        (keyed([7, 7], [0, 1]), "claims a triple twice"),
        (keyed([7, 8], [1, 1]), "claims a sentence twice"),
    ],
)
def test_claims_that_cannot_be_true_are_refused(impossible, reason):
    with pytest.raises(RefusedError, match=reason):
        check_claims(impossible, sentences=3, triples=5)


def test_digests_that_differ_in_the_last_byte_are_different_triples():
    two = keyed([7, 7], [0, 1])
    two.digest[1, 31] = 8
    check_claims(two, sentences=3, triples=0)
    assert two.keys().tolist() == [bytes([7] * 32), bytes([7] * 31 + [8])]


NUMBERS = np.zeros(1, np.int32)


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        (claims([0], [0]), "triple", -1),
        (claims([0], [0]), "index", -1),
        (claims([0], [0]), "value", -0.25),
        (claims([0], [0]), "value", 1.25),
        (keyed([7], [0]), "index", -1),
        (keyed([7], [0]), "value", -0.25),
        (keyed([7], [0]), "value", 1.25),
        (Winners(NUMBERS), "index", -1),
        (PooledWinners(NUMBERS, NUMBERS), "site", -1),
        (PooledWinners(NUMBERS, NUMBERS), "index", -1),
    ],
)
def test_numbers_out_of_range_are_refused_and_those_at_its_ends_are_not(message, field, value):
    for inside in (0, 1):
        assert type(message).unpack(_with(message, field, inside), {}).pack()[field].tolist() == [inside]
    with pytest.raises(RefusedError, match=f"{field} holds {value}"):
        type(message).unpack(_with(message, field, value), {})


def _with(message, field, value):
    arrays = message.pack()
    return arrays | {field: np.full_like(arrays[field], value)}


# Who wins, if sites are not trusted.


def claimed(values: dict[int, dict[int, float]]) -> dict[int, Claims]:
    """By site, the value of each triple; the sentence's index is the triple's place."""
    return {
        site: Claims(
            np.array(list(own), np.int32),
            np.array(list(own.values()), np.float32),
            np.arange(len(own), dtype=np.int32),
        )
        for site, own in values.items()
    }


def won(found: dict[int, Winners]) -> dict[int, list[int]]:
    return {site: one.index.tolist() for site, one in found.items()}


def test_a_site_wins_at_most_its_share_and_the_next_claim_wins_the_rest():
    greedy = {0: 0.9, 1: 0.99, 2: 0.98, 3: 0.97}
    values = {0: greedy, 1: {0: 0.5, 1: 0.5, 2: 0.1}, 2: {3: 0.2, 2: 0.3}}
    assert won(winners(claimed(values))) == {0: [0, 1, 2, 3]}
    # An equal share of 4 triples among 3 sites is 1.33; twice that are 2: site 0 keeps triples 1 and 2.
    assert won(winners(claimed(values), share_cap=2.0)) == {0: [1, 2], 1: [0], 2: [0]}
    # With a cap of 1 each wins one: site 0 triple 1, site 2 triple 2, site 1 triple 0; nobody is left for 3.
    assert won(winners(claimed(values), share_cap=1.0)) == {0: [1], 1: [0], 2: [1]}


def test_by_rank_high_values_alone_do_not_win():
    values = {0: {0: 1.0, 1: 1.0, 2: 1.0}, 1: {0: 0.4, 1: 0.2, 2: 0.3}}
    assert won(winners(claimed(values))) == {0: [0, 1, 2]}
    assert won(winners(claimed(values), by_rank=True)) == {0: [1, 2], 1: [0]}


def test_no_claims_no_winners():
    assert winners({}, share_cap=2.0) == winners(claimed({3: {}}), by_rank=True, share_cap=2.0) == {}


def test_ranks_by_hand():
    """Two relations: three values of the first, one of the second."""
    values = np.array([0.9, 0.5, 0.1, 0.7], np.float32)
    told = levelled(values, np.array([1, 0, 1, 1]), 4)
    # of relation 1: 0.1 < 0.7 < 0.9 are ranks 1/6, 3/6, 5/6, levels 0, 2, 3; of relation 0: 1/2, level 2
    np.testing.assert_allclose(told, [3.5 / 4, 2.5 / 4, 0.5 / 4, 2.5 / 4])


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_ranks_keep_the_order_of_a_relation_and_hide_its_values(claimed, levels):
    values = np.array([value for value, _ in claimed], np.float32)
    relations = np.array([relation for _, relation in claimed])
    told = levelled(values, relations, levels)
    assert ((told > 0) & (told < 1)).all() and len(np.unique(told)) <= levels
    for relation in np.unique(relations):
        mine = relations == relation
        order = np.argsort(values[mine], kind="stable")
        assert (np.diff(told[mine][order]) >= 0).all()
        place = (np.arange(mine.sum()) + 0.5) / mine.sum()
        np.testing.assert_allclose(np.sort(told[mine]), (np.floor(place * levels) + 0.5) / levels, atol=1e-6)


def test_decoys_have_digests_of_their_own_and_values_as_others():
    digest, value = np.arange(96, dtype=np.uint8).reshape(3, 32), np.array([0.1, 0.4, 0.7], np.float32)
    order = np.array([2, -1, 0, -1, 1])
    found, told = with_decoys(digest, value, order, np.random.default_rng(0))
    np.testing.assert_array_equal(found[[0, 2, 4]], digest[[2, 0, 1]])
    np.testing.assert_array_equal(told[[0, 2, 4]], value[[2, 0, 1]])
    assert set(told.tolist()) <= set(value.tolist())
    assert len({one.tobytes() for one in found}) == 5
