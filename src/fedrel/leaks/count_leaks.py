"""How frequent is each relation at a site?

A site's model predicts the relations that it was trained on more often. Over the attacker's own text, the mean
prediction of the site's model, against that of shadow sites' models, tells by how much a relation's share at the
site differs from its share elsewhere. Predictions of D_v tell the same without a model, and claims with the numbers
of facts say it outright: a fact's number names its relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.leaks.crossings import AttackedRound, View
from fedrel.leaks.roc import correlation
from fedrel.methods.claims import Claims

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FoundShares:
    """Of one site: each relation's share as it was found, as it is, and as it is at an average site."""

    found: Floats
    true: Floats
    average: Floats


def found_shares(
    round_: AttackedRound,
    shares: Callable[[int], Floats],
    mean_prediction: Callable[[View], Floats],
    relation_of: npt.NDArray[np.int32],
) -> list[FoundShares]:
    """The shares that each view tells, of each of its sites.

    `shares` are those of a site's text, `mean_prediction` a view's over the attacker's text, and `relation_of` the
    relation of each fact of the knowledge base.
    """
    shadows = [site for view in round_.shadows for site in view.sites]
    average = np.mean([shares(site) for site in shadows], axis=0)
    usual = np.mean([mean_prediction(view) for view in round_.shadows], axis=0)
    found = []
    for view in round_.views:
        told = average + mean_prediction(view) - usual
        for site in view.sites:
            claims = round_.claims.get(site)
            if isinstance(claims, Claims):
                counts = np.bincount(relation_of[claims.triple], minlength=len(average))
                found.append(FoundShares(counts / max(counts.sum(), 1), shares(site), average))
            else:
                found.append(FoundShares(told, shares(site), average))
    return found


def correlations(found: Sequence[FoundShares]) -> tuple[float, float, float]:
    """Pearson's r between found and true shares, over all sites and relations.

    Then the same of how far they are from the average site's, which is what nobody knew before; and r of one who
    takes every site for the average one.
    """
    told, true, average = (
        np.stack([getattr(one, what) for one in found]) for what in ("found", "true", "average")
    )
    beyond = correlation((told - average).ravel(), (true - average).ravel())
    return correlation(told.ravel(), true.ravel()), beyond, correlation(average.ravel(), true.ravel())
