"""Lazy MIL's claims: which are refused, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.federation.messages import RefusedError
from fedrel.methods.claims import Claims, KeyedClaims, PooledWinners, Winners, check_claims, winners


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
