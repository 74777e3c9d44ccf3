"""Keyed triples: names for facts that sites agree on and the coordinator cannot read.

Lazy MIL's coordinator must see that two sites speak of the same triple, not which triple it is. Sites that
share a key send HMAC-SHA256 digests (RFC 2104) instead; without the key, nobody can try out the public
knowledge base's triples one by one, as a plain hash would allow.
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
