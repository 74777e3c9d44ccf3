"""Digests are plain HMAC-SHA256, one a triple, and names cannot run into each other."""

from __future__ import annotations

import hashlib

from fedrel.privacy.keyed import digests


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
