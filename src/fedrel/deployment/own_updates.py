"""A site's own updates among those that global weights are made of, where sites vouch for theirs.

The list that comes with the weights (`Earned`) has the round, site, question and share of every update, and the
tags show that the weights are just that. So a site can tell whether its own updates are in them, and whether
another site counts for more than was agreed for it. Without the list, neither can be told from weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrel.privacy.vouching import WHOLE, Made


@dataclass(frozen=True, slots=True)
class OwnUpdates:
    """What a site knows of its own part in an experiment."""

    site: int
    sent: Mapping[int, Mapping[int, int]]
    """By round, the numbers of the questions that it answered with an update, and from how many examples."""

    def left_out(self, made: Made, most: int) -> str:
        """What is wrong about the site's own updates in a list; empty if at most `most` in a row are missing.

        An answer can be lost on the way, so one that is missing is no lie yet. Rounds that the list does not have
        came to nothing, or were gone back on.
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
        mine = [round_ for round_ in sorted(set(made.round.tolist())) if self.sent.get(round_)]
        last = mine[-most - 1 :]
        if len(last) <= most or counted.intersection(last):
            return ""
        rounds = ", ".join(str(round_) for round_ in last)
        return f"this site's own updates are not in them, though it answered in round {rounds}"

    def outweighed(self, made: Made, agreed: Sequence[int | None]) -> str:
        """Who counts for more examples than were agreed for it (`agreed`, by site), judged by the site's own share.

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
                most = agreed[site] if site < len(agreed) else None
                if most is not None and examples * (share - rounding) > most * own:
                    return (
                        f"in round {round_}, site number {site} counts for {examples * share // own} examples or "
                        f"more, and at most {most} were agreed"
                    )
        return ""


def _entries(made: Made) -> list[tuple[int, int, int, int]]:
    columns = (made.round, made.site, made.question, made.share)
    return list(zip(*(column.tolist() for column in columns), strict=True))
