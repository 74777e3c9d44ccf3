"""The secrets of a secure sum: keys of one session, masks from agreed keys, secrets divided into shares for peers.

Primitives are those of established libraries: X25519, HKDF, AES in counter mode, ChaCha20-Poly1305 and Ed25519 of
`cryptography`, and Shamir's scheme of `pycryptodome`. A site derives all keys of a session from one secret of that
session, so a process that was killed and started again has the same ones.

A site's peers hold the shares, and a quorum of them can uncover a secret. In a small cohort all sites are peers.
From `SPARSE_FROM` on, a site's peers are its neighbours in a ring (Bell et al. 2020, Secure Single-Server
Aggregation with (Poly)Logarithmic Overhead, Algorithm 2). The order of the ring follows from the session's name, so
that every site can check that its peers are its neighbours, not a chosen few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import ceil, comb
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Bytes = npt.NDArray[np.uint8]
Ring = npt.NDArray[np.uint32]  # numbers that are added modulo 2^32

KEY, SECRET, TAG = 32, 16, 16  # in bytes
SEALED = 2 * SECRET + TAG  # a share of each of a site's two secrets, encrypted for one peer
_AT_ONCE = 1 << 18  # bytes of a mask that are made at once: they stay in the processor's cache
_ZEROS = bytes(_AT_ONCE)

SPARSE_FROM = 100  # so many sites
COLLUDING, DROPPING = 0.2, 0.1  # of a sparse cohort: the shares of sites that it must withstand
UNSAFE, FAILS = 2.0**-40, 2.0**-30  # how likely that it does not, for any of its sites
TWO_THIRDS = 2 / 3


class Registered(Protocol):
    """The keys by which sites are known to each other and to the coordinator, in one run."""

    @property
    def run(self) -> str:
        """The name of the run: keys and signatures of another run are of no use in this one."""

    def check(self, site: int, signature: bytes, text: bytes) -> None:
        """`TamperedError` unless this site has signed just this with its registered key."""


class Secrets(Registered, Protocol):
    """What a site keeps secret beside that: the key that it signs with, and one secret for each session."""

    def of_session(self, site: int, round_: int, session: bytes, *, new: bool) -> bytes | None:
        """The secret of a session, made if it is `new`; None if the site never began this session."""

    def sign(self, site: int, text: bytes) -> bytes:
        """The signature of a site that this process works for."""


@dataclass(frozen=True)
class SimulatedSecrets:
    """The secrets of all sites of a simulation: it has nobody to keep them from."""

    seed: int
    run: str = ""

    def of_session(self, site: int, round_: int, session: bytes, *, new: bool) -> bytes | None:
        """Bytes that follow from the run's seed."""
        return derived(self._of(site), b"session", session)

    def sign(self, site: int, text: bytes) -> bytes:
        """With a key that follows from the run's seed, too."""
        return _ed25519(self._of(site)).sign(text)

    def check(self, site: int, signature: bytes, text: bytes) -> None:
        """With the public part of the same key."""
        from cryptography.exceptions import InvalidSignature

        try:
            _public(self, site).verify(signature, text)
        except InvalidSignature as error:
            raise TamperedError("not signed with its registered key") from error

    def _of(self, site: int) -> bytes:
        return numpy_generator(self.seed, "secret", site).bytes(KEY)


class TamperedError(Exception):
    """Something that does not have the signature or the tag that it must have."""


@dataclass(frozen=True)
class SessionKeys:
    """What a site keeps secret in one session: seeds of its two key pairs and of its own mask.

    The seeds of the mask's key pair and of the own mask are divided into shares, so that a quorum of peers can
    uncover one of the two: the former if the site drops out, the latter if it answers.
    """

    mask_seed: bytes
    own_seed: bytes
    share_seed: bytes

    @classmethod
    def of(cls, secret: bytes) -> SessionKeys:
        """The keys that follow from a site's secret of a session."""
        found = derived(secret, b"session keys", length=3 * SECRET)
        return cls(found[:SECRET], found[SECRET : 2 * SECRET], found[2 * SECRET :])

    @cached_property
    def mask_key(self) -> X25519PrivateKey:
        """The key that masks are agreed with."""
        return private_key(self.mask_seed)

    @cached_property
    def share_key(self) -> X25519PrivateKey:
        """The key that shares are encrypted with."""
        return private_key(self.share_seed)

    @property
    def public(self) -> bytes:
        """Both public keys."""
        return b"".join(key.public_key().public_bytes_raw() for key in (self.mask_key, self.share_key))


def derived(secret: bytes, purpose: bytes, *context: bytes, length: int = KEY) -> bytes:
    """A key for one purpose: HKDF-SHA256, with the lengths of all parts in what it is bound to."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    bound = framed(b"fedrel secure sum", purpose, *context)
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=bound).derive(secret)


def framed(*parts: bytes) -> bytes:
    """Several parts as one, each after its length: other parts never make the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def private_key(seed: bytes) -> X25519PrivateKey:
    """The key of a pair that a seed stands for."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(derived(seed, b"key pair"))


def agreed(own: X25519PrivateKey, peer: bytes, purpose: bytes, *context: bytes) -> bytes:
    """The key that two sites agree on, each from its own private key and the other's public one."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:  # a key of low order
        raise TamperedError("a public key is not one") from error
    return derived(secret, purpose, *context)


# Masks.


def add_mask(total: Ring, key: bytes, sign: int) -> None:
    """Add the mask that a key stands for, or take it off (sign -1): a stream of AES-256 in counter mode."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    buffer = bytearray(_AT_ONCE)
    mask = np.frombuffer(buffer, "<u4")
    change = np.add if sign > 0 else np.subtract
    for start in range(0, len(total), len(mask)):
        part = total[start : start + len(mask)]
        stream.update_into(_ZEROS, buffer)
        change(part, mask[: len(part)], out=part)


# Secrets in shares.


def divided(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shamir's shares of a secret, numbered from 1: so many of them together, and no fewer, give it back."""
    from Crypto.Protocol.SecretSharing import Shamir

    return [share for _, share in Shamir.split(threshold, count, secret, ssss=False)]


def combined(shares: Mapping[int, bytes]) -> bytes:
    """The secret of which these are shares, by number; as many as the threshold was.

    It is pycryptodome's `Shamir.combine`, but for the factors of shares with the same numbers, which are computed
    once: a coordinator puts together the secrets of hundreds of sites, most of them from the same numbers.
    """
    total = 0
    for multiples, share in zip(_factors(tuple(shares)), shares.values(), strict=True):
        bits = int.from_bytes(share, "big")
        while bits:
            lowest = bits & -bits
            total ^= multiples[lowest.bit_length() - 1]
            bits ^= lowest
    return total.to_bytes(SECRET, "big")


@lru_cache(maxsize=256)
def _factors(numbers: tuple[int, ...]) -> list[list[int]]:
    """What each share is multiplied by, the polynomial of Lagrange at 0, and its multiples by x, x^2 to x^127.

    A share is a sum of some powers of x, in pycryptodome's field of 2^128 polynomials.
    """
    from Crypto.Protocol import SecretSharing

    element: Any = SecretSharing._Element
    found = []
    for own in numbers:
        above, below = element(1), element(1)
        for other in numbers:
            if other != own:
                above *= element(other)
                below *= element(own) + element(other)
        multiples = [int(above * below.inverse())]
        while len(multiples) < 8 * SECRET:
            doubled = multiples[-1] << 1
            multiples.append(doubled ^ element.irr_poly if doubled >> 8 * SECRET else doubled)
        found.append(multiples)
    return found


def sealed(key: bytes, text: bytes) -> bytes:
    """Encrypted and authenticated under a key that is used for this alone."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), text, None)


def opened(key: bytes, text: bytes) -> bytes:
    """What was sealed; `TamperedError` if it was changed on the way, or is of another session."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), text, None)
    except InvalidTag as error:
        raise TamperedError("a peer's share was changed on the way") from error


def rows(parts: Sequence[bytes], width: int) -> Bytes:
    """Byte strings of one length as rows of an array, [n, width], in which form they are sent."""
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, width)


def quorum(peers: int, threshold: float = TWO_THIRDS) -> int:
    """How many of a site's peers must work together to uncover a secret of it: two thirds, or a larger part.

    Each gives one kind of share. So of one division into shares a coordinator gets no quorum of both kinds, as long
    as fewer than a third of them tell it both.
    """
    return ceil(threshold * peers - 1e-9)  # 2 / 3 * 9 must be 6


def ring(session: bytes, sites: Sequence[int]) -> list[int]:
    """The sites of a cohort in an order that follows from the session's name."""
    return sorted(sites, key=lambda site: hashlib.sha256(session + site.to_bytes(4, "big")).digest())


def neighbours(order: Sequence[int], threshold: float = TWO_THIRDS) -> dict[int, list[int]]:
    """The peers of each site of a ring, ascending, itself among them: all, or in a large cohort the nearest."""
    if len(order) < SPARSE_FROM:
        return dict.fromkeys(order, sorted(order))
    return {site: _nearest(order, place, threshold) for place, site in enumerate(order)}


def peers_of(site: int, order: Sequence[int], threshold: float = TWO_THIRDS) -> list[int]:
    """The peers of one site of a ring."""
    return sorted(order) if len(order) < SPARSE_FROM else _nearest(order, order.index(site), threshold)


def _nearest(order: Sequence[int], place: int, threshold: float) -> list[int]:
    half = degree(len(order), threshold) // 2
    return sorted({order[(place + step) % len(order)] for step in range(-half, half + 1)})


@cache
def degree(count: int, threshold: float = TWO_THIRDS) -> int:
    """How many other peers each of so many sites needs, an even number: the fewest that withstand what they must.

    With them, the chance that any site has a quorum of colluding peers is below `UNSAFE`, and that any has fewer
    peers than a quorum left is below `FAILS`.
    """
    colluding, dropping = int(COLLUDING * count), int(DROPPING * count)
    for peers in range(2, count - 1, 2):
        needed = quorum(peers + 1, threshold)
        unsafe = _at_least(needed, peers, colluding, count - 1)
        fails = _at_least(peers + 1 - needed, peers, dropping, count - 1)
        if count * unsafe < UNSAFE and count * fails < FAILS:
            return peers
    return 2 * (count // 2)


@cache
def _ed25519(secret: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(derived(secret, b"signing"))


@cache
def _public(secrets: SimulatedSecrets, site: int) -> Ed25519PublicKey:
    return _ed25519(secrets._of(site)).public_key()


def _at_least(least: int, drawn: int, marked: int, count: int) -> float:
    """The chance that so many of `drawn` sites are marked, if `marked` of all `count` are (hypergeometric)."""
    ways = sum(
        comb(marked, k) * comb(count - marked, drawn - k) for k in range(least, min(drawn, marked) + 1)
    )
    return ways / comb(count, drawn)
