"""Lazy MIL's claims: which are refused, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.federation.messages import RefusedError
from fedrel.methods.claims import Claims, KeyedClaims, PooledWinners, Winners, check_claims


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
