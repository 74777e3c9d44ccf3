"""Was a sentence among those that a site trained on?

By the likelihood of its label under the site's model, or under the mean of several sites' (RMIA); where a site
sends predictions of D_v instead, for the sentences that the attacker put into D_v. The attacker rehearses on its
shadow sites, of which it knows the text, and takes the settings that tell members best there.

RMIA is of Zarifzadeh, Liu, Shokri 2024, Low-Cost High-Power Membership Inference Attacks. A sentence that a model
was trained on is likelier under it than under models that were not. How much likelier is compared with other
sentences z of the same kind, which surely were not trained on. Here the offline attack: all reference models are
trained without the sentence (section 4, appendix B.2.2). Its two settings are chosen where the attacker knows the
truth, at its own shadow sites.

Claims tell more. A site claims every fact that its text mentions, so a sentence of a fact that is not claimed is
not there; and a claim's value is the p(r|s) of one sentence, which the attacker can compute for a sentence that it
has, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.leaks.crossings import AttackedRound, View
from fedrel.leaks.leak_texts import LeakTexts
from fedrel.methods.claims import Claims, KeyedClaims
from fedrel.tensors.weights import Weights

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Score = Callable[[Weights, Ints], Floats]  # each relation's probability for rows, [n, R]

SAME = 1e-6  # two probabilities of one sentence differ by less
ABSENT, UNKNOWN, CLAIMED, MATCHED = (
    -10.0,
    0.0,
    10.0,
    20.0,
)  # by what claims tell; RMIA's scores are from 0 to 1
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Guessed:
    """For every candidate of a round: how sure the attacker is that it is a member, and whether it is."""

    scores: Floats
    member: npt.NDArray[np.bool_]
    setting: Setting


class Likelihoods:
    """What each view of a round says about the candidates of its sites and the attacker's population."""

    def __init__(self, round_: AttackedRound, texts: LeakTexts, validation: Ints, score: Score) -> None:
        self._validation, self._score = validation, score
        sites = {site for view in round_.views for site in view.sites}
        self.asked = {site: _candidates(texts, site, validation, round_.views[0]) for site in sites}
        rows = [texts.population, texts.rehearsed(), *(rows for rows, _ in self.asked.values())]
        self.rows = np.unique(np.concatenate(rows))
        self._label = texts.corpus.relation[self.rows]
        self._found: dict[int, Floats] = {}  # by the view's id: a round's views live as long as this

    def of_labels(self, view: View) -> Floats:
        """The probability of the label of each of the rows."""
        found: Floats = self._all(view)[np.arange(len(self.rows)), self._label]
        return found

    def _all(self, view: View) -> Floats:
        if id(view) not in self._found:
            if view.predictions is not None:
                self._found[id(view)] = view.predictions[np.searchsorted(self._validation, self.rows)]
            else:
                assert view.weights is not None, "a view has weights or predictions"
                self._found[id(view)] = self._score(view.weights, self.rows)
        return self._found[id(view)]


def guessed_members(round_: AttackedRound, texts: LeakTexts, known: Likelihoods) -> Guessed:
    """Ask about all candidates of all sites that were seen in a round."""
    outside = np.mean([known.of_labels(view) for view in round_.shadows], axis=0)
    base = known.of_labels(View((), weights=round_.base)) if round_.claims else None
    others = np.searchsorted(known.rows, texts.population)
    setting = rehearsed(round_, texts, known)
    scores, members = [], []
    for view in round_.views:
        seen = known.of_labels(view)
        for site in view.sites:
            own, member = known.asked[site]
            places = np.searchsorted(known.rows, own)
            found = membership_scores(seen[places], outside[places], seen[others], outside[others], setting)
            if base is not None and (claims := round_.claims.get(site)) is not None:
                found = found + evidence(claims, texts.corpus.triple[own], base[places])
            scores.append(found)
            members.append(member)
    return Guessed(np.concatenate(scores), np.concatenate(members), setting)


def rehearsed(round_: AttackedRound, texts: LeakTexts, known: Likelihoods) -> Setting:
    """The settings that tell members best where shadow sites are attacked, each with the others as references.

    A half of the population is outside all of them; the other half are the z.
    """
    likelihood = np.stack([known.of_labels(view) for view in round_.shadows])
    if len(likelihood) < 2:
        return SETTINGS[0]
    asked = np.concatenate([texts.rehearsed(), texts.population[::2]])
    held = np.stack([texts.held(view.sites, asked) for view in round_.shadows])
    places, others = (np.searchsorted(known.rows, rows) for rows in (asked, texts.population[1::2]))
    found: dict[Setting, list[Floats]] = {setting: [] for setting in SETTINGS}
    member = []
    for own in range(len(likelihood)):
        rest = np.arange(len(likelihood)) != own
        free = (~held[rest]).sum(0)  # references that were not trained on it
        outside = (likelihood[rest][:, places] * ~held[rest]).sum(0)[free > 0] / free[free > 0]
        target, z, z_outside = (
            likelihood[own, places][free > 0],
            likelihood[own, others],
            likelihood[rest][:, others].mean(0),
        )
        for setting, scores in found.items():
            scores.append(membership_scores(target, outside, z, z_outside, setting))
        member.append(held[own][free > 0])
    truth = np.concatenate(member)
    return max(SETTINGS, key=lambda one: auc(np.concatenate(found[one]), truth))


def evidence(claims: Claims | KeyedClaims, triple: npt.NDArray[np.int32], probability: Floats) -> Floats:
    """What a site's claims say about sentences of these triples, whose p(r|s) under the global weights is known."""
    values = np.sort(claims.value.astype(np.float64))
    if isinstance(claims, Claims):
        value = dict(zip(claims.triple.tolist(), claims.value.tolist(), strict=True))
        told = np.array([value.get(number, np.nan) for number in triple.tolist()])
        same = np.abs(told - probability) <= SAME
        return np.where(np.isnan(told), ABSENT, np.where(same, MATCHED, CLAIMED))
    place = np.searchsorted(values, probability)
    near = np.stack([values[np.clip(place + shift, 0, len(values) - 1)] for shift in (-1, 0)])
    return np.where(np.abs(near - probability).min(0) <= SAME, MATCHED, UNKNOWN)


class Setting(NamedTuple):
    """What the attack assumes."""

    inside: float
    """a: p_in is taken for a p_out + 1 - a; near 1 where training raises it little."""
    gamma: float
    """How many times as likely as z a sentence must have become to count."""


SETTINGS = tuple(Setting(*one) for one in product((0.3, 0.5, 0.7, 0.9, 1.0), (1.0, 1.1, 2.0)))
TIES = 1e-6  # so little that a ratio decides only between equal shares
_LEAST = 1e-12  # probability


def membership_scores(
    target: Floats, outside: Floats, others: Floats, others_outside: Floats, setting: Setting
) -> Floats:
    """Eq. 3 and 4: for each x the share of the z with LR(x, z) >= gamma, from 0 to 1; equal ones by their ratio.

    `target` [x] and `others` [z] are probabilities of the labels under the attacked model, `outside` and
    `others_outside` their means under models that have seen none of them.
    """
    ratio = target / expected(outside, setting.inside)
    least = setting.gamma * np.sort(others / expected(others_outside, setting.inside))
    share = np.searchsorted(least, ratio, side="right") / max(len(least), 1)
    scores: Floats = share + TIES * np.minimum(ratio, 1 / (TIES * 2 * max(len(least), 1)))
    return scores


def expected(outside: Floats, inside: float) -> Floats:
    """p(x), the likelihood under any model, with x trained on or not: ((1 + a) p_out(x) + 1 - a) / 2."""
    found: Floats = np.maximum(((1 + inside) * outside + 1 - inside) / 2, _LEAST)
    return found


def auc(scores: Floats, positive: Bools) -> float:
    """The chance that a positive one has a higher score than a negative one; equal scores count half.

    >>> auc(np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False]))
    0.875
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2  # the mean rank of equal scores, from 1
    hits, alarms = int(positive.sum()), int((~positive).sum())
    if not hits or not alarms:
        return float("nan")
    return float((middle[place][positive].sum() - hits * (hits + 1) / 2) / (hits * alarms))


def hits_at(scores: Floats, positive: Bools, alarms: float) -> float:
    """The largest share of positive ones above a threshold that at most the share `alarms` of the others reach.

    With fewer than 1 / `alarms` negative ones, no false alarm is allowed.

    >>> hits_at(np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False]), 0.1)
    0.5
    """
    others = np.sort(scores[~positive])[::-1]
    if not len(others) or not positive.any():
        return float("nan")
    allowed = int(alarms * len(others) + 1e-9)
    if allowed >= len(others):
        return 1.0
    return float((scores[positive] > others[allowed]).mean())


def _candidates(
    texts: LeakTexts, site: int, validation: Ints, view: View
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """All of a site's, or those in D_v if only predictions of that are seen."""
    rows, member = texts.candidates(site)
    if view.predictions is None:
        return rows, member
    planted = np.isin(rows, validation)
    return rows[planted], member[planted]
