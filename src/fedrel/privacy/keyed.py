"""Keyed triples: digests of triples that are the same at every site and mean nothing to the coordinator.

Lazy MIL's coordinator must see that two sites have the same triple, but not which one. Sites that share a key
send HMAC-SHA256 digests (RFC 2104). With a plain hash, the coordinator could hash the public knowledge base's
triples and compare; without the key it cannot.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

KEY_BYTES = 32


def digests(key: bytes, triples: Iterable[tuple[str, str, str]]) -> npt.NDArray[np.uint8]:
    """The digest of each (head, relation, tail), as an [n, 32] array; a unit separator keeps names apart."""
    joined = b"".join(hmac.digest(key, "\x1f".join(triple).encode(), "sha256") for triple in triples)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)
