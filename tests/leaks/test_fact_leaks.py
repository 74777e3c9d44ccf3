"""Facts from numbers, and from keyed claims whose values the attacker can compute; correlations by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.leaks.fact_leaks import (
    KnownFacts,
    correlation,
    found_facts,
    matched,
    precision_and_recall_of_facts,
)
from fedrel.methods.claims import Claims, KeyedClaims, levelled

RELATION = np.array([0, 1, 1, 2, 2, 2, 1, 2])
VALUES = {1: np.linspace(0.1, 0.8, 8), 2: np.linspace(0.9, 0.2, 8) ** 2}
KNOWN = KnownFacts(np.arange(8), RELATION, np.array([9, 1, 8, 1, 1, 7, 1, 1]), VALUES)
IS_FACT = RELATION > 0


def keyed(triples, round_, noise=0.0, seed=3):
    digest = np.random.default_rng(5).integers(0, 256, (8, 32), np.uint8)[triples]  # the same in every round
    order = np.lexsort(digest.T[::-1])
    value = VALUES[round_][triples] + np.random.default_rng(seed + round_).normal(
        0, noise or 1e-9, len(triples)
    )
    value = np.clip(value, 0, 1).astype(np.float32)
    return KeyedClaims(digest[order], value[order], np.arange(len(triples), dtype=np.int32))


def test_numbers_are_the_facts():
    claims = Claims(np.array([0, 3, 5], np.int32), np.ones(3, np.float32), np.arange(3, dtype=np.int32))
    found = found_facts({4: [(1, claims)]}, {4: np.array([0, 3, 5, 7])}, IS_FACT, KNOWN, 0)
    assert precision_and_recall_of_facts(found) == (1.0, 2 / 3, 1 / 2), "0 is no fact, 7 was not claimed"


def test_digests_are_told_by_values_that_the_attacker_can_compute():
    mine = np.array([1, 3, 6])
    claims = [(n, keyed(mine, n)) for n in (1, 2)]
    assert sorted(matched(claims, KNOWN, 0)) == [1, 3, 6]


def test_other_sentences_of_the_same_facts_tell_less():
    mine = np.array([1, 3, 4, 6])
    claims = [(n, keyed(mine, n, noise=0.5)) for n in (1, 2)]
    assert len(np.intersect1d(matched(claims, KNOWN, 0), mine)) < 3


def test_ranks_in_few_levels_leave_little_to_compare():
    mine = np.array([1, 3, 4, 6, 7])
    exact = [(n, keyed(mine, n)) for n in (1, 2)]
    ranks = []
    for n, one in exact:
        digest = np.random.default_rng(5).integers(0, 256, (8, 32), np.uint8)[mine]
        order = np.lexsort(digest.T[::-1])
        told = levelled(VALUES[n][mine].astype(np.float32), RELATION[mine], 2)[order]
        ranks.append((n, KeyedClaims(one.digest, told, one.index)))
    assert len(np.intersect1d(matched(exact, KNOWN, 0), mine)) == 5
    assert len(np.intersect1d(matched(ranks, KNOWN, 2), mine)) < 5


def test_without_claims_there_is_nothing():
    assert found_facts({}, {}, IS_FACT, KNOWN, 0) is None
    assert len(matched([], KNOWN, 0)) == 0


def test_correlation():
    found, true = np.array([1.0, 2.0, 4.0]), np.array([2.0, 1.0, 5.0])
    assert correlation(found, true) == pytest.approx(np.corrcoef(found, true)[0, 1])
    assert correlation(np.ones(3), true) == 0.0
