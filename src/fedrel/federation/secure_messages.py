"""The messages of a secure sum: keys, shares of secrets, masked numbers, and what takes the masks off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Array, Message, RefusedError, hash_arrays
from fedrel.privacy.fixed_point import Ring
from fedrel.privacy.secret_keys import KEY, SEALED, SECRET, SIGNATURE, Bytes, rows

Numbers = npt.NDArray[np.int32]

NONCE = 16  # bytes that tell one session from another


@dataclass(frozen=True, slots=True)
class Session(Message):
    """Down: the name of a session. Keys of another session are of no use in this one."""

    nonce: Annotated[Bytes, Array("uint8", (NONCE,))]
    """Bytes that no other session has."""


@dataclass(frozen=True, slots=True)
class PublicKeys(Message):
    """Up: a site's two public keys for a session, signed with its registered key."""

    keys: Annotated[Bytes, Array("uint8", (2 * KEY,))]
    """The key that masks are agreed with, then the one that shares are encrypted with."""
    signature: Annotated[Bytes, Array("uint8", (SIGNATURE,))]
    """Of the session, the site's number and the keys."""


@dataclass(frozen=True, slots=True)
class Peers(Message):
    """Down: the sites with which a site exchanges masks and shares, itself among them, with their signed keys."""

    site: Annotated[Numbers, Array("int32", ("peers",), low=0)]
    """Their numbers, ascending."""
    keys: Annotated[Bytes, Array("uint8", ("peers", 2 * KEY))]
    """Their public keys."""
    signature: Annotated[Bytes, Array("uint8", ("peers", SIGNATURE))]
    """Their signatures."""
    cohort: Annotated[int, Array("int64", low=2)]
    """How many sites the sum is over, at most: in a large cohort not all are this site's peers."""
    bound: Annotated[int, Array("int64", low=1)]
    """The largest weight that a site may have in the sum."""

    @classmethod
    def of(cls, keys: Mapping[int, PublicKeys], cohort: int, bound: int) -> Peers:
        """The peers with these keys."""
        order = sorted(keys)
        return cls(
            np.array(order, np.int32),
            rows([keys[site].keys.tobytes() for site in order], 2 * KEY),
            rows([keys[site].signature.tobytes() for site in order], SIGNATURE),
            cohort,
            bound,
        )

    def __post_init__(self) -> None:
        if (self.site[1:] <= self.site[:-1]).any():
            raise RefusedError("peers are not in ascending order, each once")


@dataclass(frozen=True, slots=True)
class SealedShares(Message):
    """Up: for each peer, its shares of the site's two secrets, encrypted so that only this peer can read them."""

    sealed: Annotated[Bytes, Array("uint8", ("peers", SEALED))]
    """A row for each peer, in the order of `Peers`."""


@dataclass(frozen=True, slots=True)
class PeerShares(Message):
    """Down: the shares that a site's peers encrypted for it, in the order of `Peers`."""

    sealed: Annotated[Bytes, Array("uint8", ("peers", SEALED))]
    """A row from each peer."""


@dataclass(frozen=True, slots=True)
class MaskedNumbers(Message):
    """Up: a site's numbers with all masks added: without the other sites', they look like chance."""

    numbers: Annotated[Ring, Array("uint32", ("numbers",))]
    """What is summed, in fixed point, then the weight, the examples and how many numbers were clipped."""


@dataclass(frozen=True, slots=True)
class Survivors(Message):
    """Down: which of a site's peers have sent their masked numbers, and which have dropped out since the shares."""

    answered: Annotated[Numbers, Array("int32", ("answered",), low=0)]
    """Their shares of the seed of their own mask are asked for."""
    dropped: Annotated[Numbers, Array("int32", ("dropped",), low=0)]
    """Their shares of the seed of the masks that they agreed with others."""


@dataclass(frozen=True, slots=True)
class Unmasking(Message):
    """Up: for each peer one share, of the one secret or of the other, never of both."""

    shares: Annotated[Bytes, Array("uint8", ("peers", SECRET))]
    """Of those that answered, then of those that dropped out."""


def digest(messages: Iterable[Message]) -> str:
    """The SHA-256 of some messages: equal only if they are."""
    found = hashlib.sha256()
    for message in sorted(messages, key=lambda one: type(one).__name__):
        found.update(type(message).__name__.encode())
        hash_arrays(found, message.pack())
    return found.hexdigest()
