"""The secrets of a secure sum: keys of one session, masks from agreed keys, and secrets divided into shares.

Primitives are those of established libraries: X25519, HKDF, AES in counter mode, ChaCha20-Poly1305 and Ed25519 of
`cryptography`, and Shamir's scheme of `pycryptodome`. A site derives all keys of a session from one secret of that
session, so a process that was killed and started again has the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fedrel.privacy.fixed_point import Ring
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Bytes = npt.NDArray[np.uint8]

KEY, SECRET, TAG = 32, 16, 16  # in bytes
SEALED = 2 * SECRET + TAG  # a share of each of a site's two secrets, encrypted for one peer
_AT_ONCE = 1 << 18  # bytes of a mask that are made at once: they stay in the processor's cache
_ZEROS = bytes(_AT_ONCE)


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


@cache
def _ed25519(secret: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(derived(secret, b"signing"))


@cache
def _public(secrets: SimulatedSecrets, site: int) -> Ed25519PublicKey:
    return _ed25519(secrets._of(site)).public_key()
