"""A site's own updates among those that global weights are made of, where sites vouch for theirs.

The list that comes with the weights (`Earned`) has the round, site, question and share of every update, and the
tags show that the weights are just that. So a site can tell whether its own updates are in them, and whether
another site counts for more than was agreed for it. Without the list, neither can be told from weights.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrel.files import read_sealed, sealed, write_text
from fedrel.privacy.vouching import WHOLE, Made


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


def _entries(made: Made) -> list[tuple[int, int, int, int]]:
    columns = (made.round, made.site, made.question, made.share)
    return list(zip(*(column.tolist() for column in columns), strict=True))
