"""The messages of a secure sum: keys, shares of secrets, masked numbers, signed lists, and what takes masks off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Array, Message, RefusedError
from fedrel.privacy.secret_keys import KEY, SEALED, SECRET, Bytes, Ring, rows

Numbers = npt.NDArray[np.int32]

NONCE = 16  # bytes that tell one session from another


@dataclass(frozen=True, slots=True)
class Session(Message):
    """Down: what tells a session from others. Keys of another session are of no use in this one."""

    nonce: Annotated[Bytes, Array("uint8", (NONCE,))]
    """Bytes that no other session of the round has."""


@dataclass(frozen=True, slots=True)
class PublicKeys(Message):
    """Up: a site's two public keys for a session, signed with its registered key."""

    covered_by_noise = True

    keys: Annotated[Bytes, Array("uint8", (2 * KEY,))]
    """The key that masks are agreed with, then the one that shares are encrypted with."""
    signature: Annotated[Bytes, Array("uint8", ("signature",))]
    """Of the session, the site's number and the keys."""


@dataclass(frozen=True, slots=True)
class Peers(Message):
    """Down: the sites with which a site exchanges masks and shares, itself among them, with their signed keys."""

    site: Annotated[Numbers, Array("int32", ("peers",), low=0)]
    """Their numbers, ascending."""
    keys: Annotated[Bytes, Array("uint8", ("peers", 2 * KEY))]
    """Their public keys."""
    signature: Annotated[Bytes, Array("uint8", ("peers", "signature"))]
    """Their signatures."""
    cohort: Annotated[Numbers, Array("int32", ("cohort",), low=0)]
    """The numbers of all sites that the sum may be over: in a large cohort not all are this site's peers."""
    bound: Annotated[int, Array("int64", low=1)]
    """The largest weight that a site may have in the sum."""

    @classmethod
    def of(cls, keys: Mapping[int, PublicKeys], cohort: Iterable[int], bound: int) -> Peers:
        """The peers with these keys."""
        order = sorted(keys)
        signatures = [keys[site].signature.tobytes() for site in order]
        return cls(
            np.array(order, np.int32),
            rows([keys[site].keys.tobytes() for site in order], 2 * KEY),
            rows(signatures, len(signatures[0])),
            numbers(cohort),
            bound,
        )

    def __post_init__(self) -> None:
        _check_ascending(self.site, "peers")
        _check_ascending(self.cohort, "the sites of the cohort")


@dataclass(frozen=True, slots=True)
class SealedShares(Message):
    """Up: for each peer, its shares of the site's two secrets, encrypted so that only this peer can read them."""

    covered_by_noise = True

    sealed: Annotated[Bytes, Array("uint8", ("peers", SEALED))]
    """A row for each peer, in the order of `Peers`."""


@dataclass(frozen=True, slots=True)
class PeerShares(Message):
    """Down: which sites have given shares, and those that a site's peers encrypted for it."""

    sealed: Annotated[Bytes, Array("uint8", ("peers", SEALED))]
    """A row from each peer that has given shares, in the order of `Peers`."""
    shared: Annotated[Numbers, Array("int32", ("shared",), low=0)]
    """The numbers of all sites of the cohort that have given shares."""

    def __post_init__(self) -> None:
        _check_ascending(self.shared, "the sites that have given shares")


@dataclass(frozen=True, slots=True)
class MaskedNumbers(Message):
    """Up: a site's numbers with all masks added: without the other sites', they look like chance."""

    covered_by_noise = True

    numbers: Annotated[Ring, Array("uint32", ("numbers",))]
    """What is summed, in fixed point, then the weight, the examples and how many numbers were clipped."""


@dataclass(frozen=True, slots=True)
class Survivors(Message):
    """Down: which sites have sent their masked numbers; the others that gave shares have dropped out since."""

    answered: Annotated[Numbers, Array("int32", ("answered",), low=0)]
    """The numbers of all sites that the sum is over."""

    def __post_init__(self) -> None:
        _check_ascending(self.answered, "the sites that answered")


@dataclass(frozen=True, slots=True)
class SignedLists(Message):
    """Up: a site's signature of the lists that it was told: the cohort, who gave shares, who answered."""

    covered_by_noise = True

    signature: Annotated[Bytes, Array("uint8", ("signature",))]
    """Made with its registered key."""


@dataclass(frozen=True, slots=True)
class PeerSignatures(Message):
    """Down: the peers' signatures of the same lists. Without a quorum of them, a site uncovers nothing."""

    site: Annotated[Numbers, Array("int32", ("peers",), low=0)]
    """The numbers of the peers that signed, ascending."""
    signature: Annotated[Bytes, Array("uint8", ("peers", "signature"))]
    """Their signatures."""

    @classmethod
    def of(cls, signed: Mapping[int, SignedLists]) -> PeerSignatures:
        """The signatures of these sites, of which there is at least one."""
        order = sorted(signed)
        found = [signed[site].signature.tobytes() for site in order]
        return cls(np.array(order, np.int32), rows(found, len(found[0])))

    def __post_init__(self) -> None:
        _check_ascending(self.site, "the peers that signed")


@dataclass(frozen=True, slots=True)
class Unmasking(Message):
    """Up: for each peer one share, of the one secret or of the other, never of both."""

    covered_by_noise = True

    shares: Annotated[Bytes, Array("uint8", ("peers", SECRET))]
    """Of each peer that gave shares, ascending: of its own mask if it answered, else of the masks it agreed on."""


def numbers(sites: Iterable[int]) -> Numbers:
    """Sites' numbers in ascending order, as they are sent."""
    return np.array(sorted(sites), np.int32)


def _check_ascending(sites: Numbers, what: str) -> None:
    if (sites[1:] <= sites[:-1]).any():
        raise RefusedError(f"{what} are not in ascending order, each once")
