"""What a real site keeps to itself: keys of rounds, digests under them, a shuffle that only it knows, and how often
sentences win.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from fedrel.privacy.site_rules import SiteRules, Wins, digests


def test_a_rounds_key_is_the_same_at_all_sites_and_another_in_every_round_and_run():
    north, south = (SiteRules(secret, b"k" * 32, "run") for secret in (b"north", b"south"))
    assert north.round_key(1) == south.round_key(1)
    other = SiteRules(b"north", b"k" * 32, "another")
    assert len({north.round_key(1), north.round_key(2), other.round_key(1)}) == 3
    assert SiteRules(b"north").round_key(1) is None


def test_only_the_site_knows_its_shuffle_and_finds_it_again():
    north, south = (SiteRules(secret, b"k" * 32, "run") for secret in (b"north", b"south"))
    orders = [rules.generator(1, "shuffle").permutation(50) for rules in (north, north, south)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()


def test_a_sentence_may_win_with_few_others_in_so_many_rounds(tmp_path: Path):
    wins = Wins(tmp_path / "wins.json")
    assert wins.add(1, [3, 5], 2) == [] and wins.add(1, [3, 5], 2) == []  # the same round is one
    assert wins.add(2, [3, 6], 2) == []
    assert wins.add(3, [3, 7], 2) == [3]
    assert wins.add(3, [7, 5], 2) == []  # what was refused does not count


def hmac_by_hand(key: bytes, message: bytes) -> bytes:
    """RFC 2104, written out: H((K ^ opad) | H((K ^ ipad) | message))."""
    padded = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in padded) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in padded) + inner).digest()


def test_digests_are_hmac_sha256():
    key = bytes(range(32))
    found = digests(key, [("m.1", "/born", "m.2"), ("m.2", "/born", "m.1")])
    assert found.shape == (2, 32)
    assert found[0].tobytes() == hmac_by_hand(key, b"m.1\x1f/born\x1fm.2")
    assert found[0].tobytes() != found[1].tobytes()


def test_another_key_and_another_cut_give_other_digests():
    one = digests(b"k" * 32, [("ab", "c", "d"), ("a", "bc", "d")])
    assert one[0].tobytes() != one[1].tobytes()
    assert one[0].tobytes() != digests(b"j" * 32, [("ab", "c", "d")])[0].tobytes()
