"""How frequent is each relation at a site?

The gradient of a classifier's bias is, for each relation, how often it was predicted less how often it was there
(as Geng et al. 2021, Towards General Deep Leakage in Federated Learning, use it). So an update's bias tells how
frequent relations are; of a classifier without one, the sums of its rows do, and of predictions their mean. How
much a difference from shadow sites means is learnt from these, whose shares are known. Claims with the numbers of
facts say it outright: a fact's number names its relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import BIAS, CLASSIFIER
from fedrel.leaks.crossings import AttackedRound, View
from fedrel.leaks.roc import correlation
from fedrel.methods.claims import Claims

Floats = npt.NDArray[np.float64]

_LEAST = 1e-12


@dataclass(frozen=True)
class FoundShares:
    """Of one site: each relation's share as it was found, as it is, and as it is at an average site."""

    found: Floats
    true: Floats
    average: Floats


def found_shares(
    round_: AttackedRound, shares: Callable[[int], Floats], relation_of: npt.NDArray[np.int32]
) -> list[FoundShares]:
    """The shares that each view tells, of each of its sites.

    `shares` are those of a site's text; `relation_of` is the relation of each fact of the knowledge base.
    """
    known = np.stack([shares(view.sites[0]) for view in round_.single_shadows])
    signs = np.stack([sign(view) for view in round_.single_shadows])
    average, usual = known.mean(0), signs.mean(0)
    slope = ((signs - usual) * (known - average)).sum(0) / np.maximum(((signs - usual) ** 2).sum(0), _LEAST)
    found = []
    for view in round_.views:
        told = average + slope * (sign(view) - usual)
        for site in view.sites:
            claims = round_.claims.get(site)
            if isinstance(claims, Claims):
                counts = np.bincount(relation_of[claims.triple], minlength=len(average))
                found.append(FoundShares(counts / max(counts.sum(), 1), shares(site), average))
            else:
                found.append(FoundShares(told, shares(site), average))
    return found


def sign(view: View) -> Floats:
    """A number for each relation that grows with its share at the site, [R]."""
    if view.predictions is not None:
        mean: Floats = view.predictions.mean(0)
        return mean
    assert view.weights is not None, "a view has weights or predictions"
    if BIAS in view.weights:
        return view.weights[BIAS].astype(np.float64)
    rows: Floats = view.weights[CLASSIFIER].astype(np.float64).sum(1)
    return rows


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
