"""Sites vouch for their updates: a coordinator can then show that global weights are made of them and nothing else.

With its update a site sends a tag: a sketch of how far training moved the weights, hidden by a mask. The sketch is
a random projection to `SIZE` numbers. Projection and masks come from a key that all sites have and the coordinator
does not. Sketches add up as moves do, and masks can be added up, too. So the coordinator adds tags as it adds
the updates, and every site can compare the sum with the sketch of the weights that it is sent. Of weights that it
made up, the coordinator cannot compute a tag, and from tags it learns nothing: to it they are random numbers.

This is a message authentication code that is linear in the message (as Agrawal and Boneh 2009, Homomorphic MACs:
MAC-Based Integrity for Network Coding), on rounded real numbers and so up to a tolerance.

The list that comes with the weights (`Earned`) has the round, site, question and share of every update, and the
tags show that the weights are just that. So a site can tell whether its own updates are in them, and whether
another site counts for more than was agreed for it. Without the list, neither can be told from weights.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedrel.files import read_sealed, sealed, write_text
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


@dataclass(frozen=True, slots=True)
class OwnUpdates:
    """What a site knows of its own part in an experiment."""

    site: int
    sent: Mapping[int, Mapping[int, int]]
    """By round, the numbers of the questions that it answered with an update, and from how many examples."""

    def left_out(self, made: Made, most: int) -> str:
        """What is wrong about the site's own updates in a list; empty if at most `most` in a row are missing.

        An answer can be lost on the way, so one that is missing is no lie yet. Rounds that came to nothing, or were
        gone back on, are missing as a whole: those between two that are in the list count as one. Later ones than
        any in the list are not due yet.
        """
        listed = {
            (round_, question): share
            for round_, site, question, share in _entries(made)
            if site == self.site  # a site is in a round's mean once
        }
        for round_, question in listed:
            if question not in self.sent.get(round_, {}):
                return f"an update of round {round_} is said to be this site's, which did not send it"
        counted = {round_ for (round_, _), share in listed.items() if share}
        known = sorted(set(made.round.tolist()))
        due = {
            bisect_left(known, round_): round_
            for round_ in sorted(self.sent)
            if round_ <= max(known, default=0)
        }
        last = [due[place] for place in sorted(due)[-most - 1 :]]
        if len(last) <= most or counted.intersection(last):
            return ""
        rounds = ", ".join(str(round_) for round_ in last)
        return f"this site's own updates are not in them, though it answered in round {rounds}"

    def outweighed(self, made: Made, agreed: Sequence[int | None], *, uniform: bool = False) -> str:
        """Who counts for more examples than were agreed for it (`agreed`, by site), judged by the site's own share.

        `uniform`: all sites count the same, so nobody for more than this one.

        A norm bound makes shares smaller, the site's own too, by no more than what is missing from the whole. A cap
        makes shares smaller as well, but none below an equal one: a site that has that much does not judge.
        """
        listed = _entries(made)
        for round_, question in ((one[0], one[2]) for one in listed if one[1] == self.site):
            shares = {site: share for other, site, _, share in listed if other == round_}
            examples, rounding = self.sent[round_][question], len(shares)
            own = shares[self.site] + max(WHOLE - sum(shares.values()), 0) + rounding
            if own >= WHOLE / len(shares):
                continue
            for site, share in shares.items():
                most = examples if uniform else agreed[site] if site < len(agreed) else None
                if most is not None and examples * (share - rounding) > most * own:
                    return (
                        f"in round {round_}, site number {site} counts for {examples * share // own} examples or "
                        f"more, and {most} are the most"
                    )
        return ""


class ShownLists:
    """What lists showed so far, in a file: a round's updates and shares are the same in every list that has them.

    Else updates of others could be given numbers of earlier rounds than the site's own, which would never be due.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._highest = 0
        self._rounds: dict[str, str] = {}
        if file.exists():
            hint = "restore it from a copy: without it, weights cannot be judged"
            kept = read_sealed(file, "what weights were said to be made of", hint)
            self._highest, self._rounds = int(kept["highest"]), dict(kept["rounds"])

    def changed(self, made: Made, round_: int) -> str:
        """Which earlier round has other updates than it had; empty, and noted, if none has."""
        shown: dict[str, list[list[int]]] = {}
        for number, *update in _entries(made):
            shown.setdefault(str(number), []).append(update)
        digests = {
            one: hashlib.sha256(json.dumps(sorted(updates)).encode()).hexdigest()[:32]
            for one, updates in shown.items()
        }
        for one, digest in digests.items():
            if int(one) < self._highest and self._rounds.get(one) != digest:
                return (
                    f"the updates of round {one} are not those that were shown before round {self._highest}"
                )
        self._highest = max(self._highest, round_)
        kept = {"highest": self._highest, "rounds": self._rounds | digests}
        write_text(self._file, json.dumps(sealed(kept)))
        return ""


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


def _entries(made: Made) -> list[tuple[int, int, int, int]]:
    columns = (made.round, made.site, made.question, made.share)
    return list(zip(*(column.tolist() for column in columns), strict=True))
