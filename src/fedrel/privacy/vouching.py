"""Sites vouch for their updates: a coordinator can then show that global weights are made of them and nothing else.

With its update a site sends a tag: a sketch of how far training moved the weights, hidden by a mask. The sketch is
a random projection to `SIZE` numbers. Projection and masks come from a key that all sites have and the coordinator
does not. Sketches add up as moves do, and masks can be added up, too. So the coordinator adds tags as it adds
the updates, and every site can compare the sum with the sketch of the weights that it is sent. Of weights that it
made up, the coordinator cannot compute a tag, and from tags it learns nothing: to it they are random numbers.

This is a message authentication code that is linear in the message (as Agrawal and Boneh 2009, Homomorphic MACs:
MAC-Based Integrity for Network Coding), on rounded real numbers and so up to a tolerance.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedrel.tensors.weights import Doubles, Weights

SIZE = 64  # numbers of a sketch: it tells lengths of moves to about 18 %
WHOLE = 2**20  # shares of updates in a mean are counted in parts of this
TAG_BYTES = 8 * SIZE
_UNIT = 2.0**20  # a sketch is rounded to multiples of 1 / _UNIT
_OFF = 1e-3  # of how far the weights went in all: what rounding may explain, and more than it does
_ROUNDING = 1e-5  # of the length of the weights themselves

Tag = npt.NDArray[np.uint64]


class Made(Protocol):
    """What weights are said to be made of: updates by round, site and question, and their shares in the means."""

    @property
    def total(self) -> Tag:
        """The sum of their tags, each times its share."""

    @property
    def round(self) -> npt.NDArray[np.int32]:
        """In which round each was trained."""

    @property
    def site(self) -> npt.NDArray[np.int32]:
        """At which site."""

    @property
    def question(self) -> npt.NDArray[np.uint64]:
        """The number of the question that it answers."""

    @property
    def share(self) -> npt.NDArray[np.int32]:
        """How much it counts in its round's mean, in parts of `WHOLE`."""


class Vouching:
    """What a site vouches by; `secret` is known to all sites and not to the coordinator."""

    def __init__(self, secret: bytes, experiment: str) -> None:
        self._key = hmac.digest(secret, f"vouching/{experiment}".encode(), "sha256")

    def tag(self, round_: int, site: int, question: int, start: Weights, trained: Weights) -> Tag:
        """The tag of an update that was trained from `start`; nobody without the key can tell it from chance."""
        fixed = np.rint(self._sketch(start, trained) * _UNIT).astype(np.int64).view(np.uint64)
        tag: Tag = fixed + self._mask(round_, site, question)
        return tag

    def problem(self, made: Made, round_: int, initial: Weights, now: Weights) -> str:
        """Why weights of this round are not made of other sites' updates as is said; empty if they are."""
        if found := _wrong_shares(made, round_):
            return found
        went = self._sketch(initial, now)
        apart = float(np.linalg.norm(went - self._explained(made)))
        length = float(np.sqrt(sum(float(np.vdot(one, one)) for one in now.values())))
        if apart <= _OFF * float(np.linalg.norm(went)) + _ROUNDING * length:
            return ""
        return f"they are {apart:.3g} away from what the sites' updates add up to"

    def _explained(self, made: Made) -> Doubles:
        """The sketch that the tags of these updates add up to."""
        total = made.total.copy()
        for round_, site, question, share in zip(
            made.round.tolist(), made.site.tolist(), made.question.tolist(), made.share, strict=True
        ):
            total -= self._mask(round_, site, question) * np.uint64(share)
        explained: Doubles = total.view(np.int64) / (_UNIT * WHOLE)
        return explained

    def _sketch(self, start: Weights, end: Weights) -> Doubles:
        """Of a move: each number is added to one of the sketch's, or subtracted from it; the key decides."""
        total = np.zeros(SIZE)
        for name, tensor in sorted(end.items()):
            drawn = self._bytes(f"projection/{name}", tensor.size)
            moved = (tensor.astype(np.float64) - start[name]).reshape(-1)
            total += np.bincount(drawn & (SIZE - 1), (1.0 - 2.0 * (drawn >> 7)) * moved, SIZE)
        return total

    def _mask(self, round_: int, site: int, question: int) -> Tag:
        return self._bytes(f"mask/{round_}/{site}/{question}", TAG_BYTES).view(np.dtype("<u8")).astype("=u8")

    def _bytes(self, purpose: str, count: int) -> npt.NDArray[np.uint8]:
        key = hmac.digest(self._key, purpose.encode(), "sha256")
        return np.frombuffer(hashlib.shake_256(key).digest(count), np.uint8)


def add_tags(total: Tag, shares: Mapping[int, int], tags: Mapping[int, Tag]) -> Tag:
    """The sum with the tags of a round's updates, by site, each times its share in parts of `WHOLE`."""
    for site, share in shares.items():
        total = total + tags[site] * np.uint64(share)
    return total


def _wrong_shares(made: Made, round_: int) -> str:
    """What is impossible about the updates and shares of earlier rounds' means; empty if nothing is."""
    if len(made.round) and int(made.round.max()) >= round_:
        return f"an update of round {int(made.round.max())} is said to be in round {round_}'s weights"
    if len(set(zip(made.round.tolist(), made.site.tolist(), strict=True))) < len(made.round):
        return "a site's update is said to be in a round's mean twice"
    whole = np.bincount(made.round, made.share)
    entries = np.bincount(made.round)
    if (whole > WHOLE + entries).any():
        return "a round's shares add up to more than a mean's"
    return ""
