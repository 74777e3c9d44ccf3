"""How frequent is each relation at a site?

The gradient of a classifier's bias is, for each relation, how often it was predicted less how often it was there
(as Geng et al. 2021, Towards General Deep Leakage in Federated Learning, use it). So an update's bias tells how
frequent relations are; so do the sums of its rows and how far these moved, and of predictions their mean. Shadow
sites, whose shares are known, teach the attacker how much a difference from them means, and which of these signs to
go by: the one that tells each of them best from the others. Claims with the numbers of facts say it outright: a
fact's number names its relation.
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
from fedrel.tensors.weights import Weights

Floats = npt.NDArray[np.float64]

CLAIMED = "claims"
_LEAST = 1e-12


@dataclass(frozen=True)
class FoundShares:
    """Of one site: each relation's share as it was found, as it is, and as it is at an average site."""

    found: Floats
    true: Floats
    average: Floats
    sign: str
    """What it was found by."""


def found_shares(
    round_: AttackedRound, shares: Callable[[int], Floats], relation_of: npt.NDArray[np.int32]
) -> list[FoundShares]:
    """The shares that each view tells, of each of its sites.

    `shares` are those of a site's text; `relation_of` is the relation of each fact of the knowledge base.
    """
    known = np.stack([shares(view.sites[0]) for view in round_.single_shadows])
    signs = [signs_of(view, round_.base) for view in round_.single_shadows]
    seen = {name: np.stack([one[name] for one in signs]) for name in signs[0]}
    chosen = max(seen, key=lambda name: _told_at_shadows(seen[name], known))
    average = known.mean(0)
    found = []
    for view in round_.views:
        told = told_shares(seen[chosen], known, signs_of(view, round_.base)[chosen])
        for site in view.sites:
            claims = round_.claims.get(site)
            if isinstance(claims, Claims):
                counts = np.bincount(relation_of[claims.triple], minlength=len(average))
                found.append(FoundShares(counts / max(counts.sum(), 1), shares(site), average, CLAIMED))
            else:
                found.append(FoundShares(told, shares(site), average, chosen))
    return found


def told_shares(signs: Floats, known: Floats, sign: Floats) -> Floats:
    """The shares that a sign tells, by a line through the signs [m, R] of sites whose shares [m, R] are known."""
    average, usual = known.mean(0), signs.mean(0)
    slope = ((signs - usual) * (known - average)).sum(0) / np.maximum(((signs - usual) ** 2).sum(0), _LEAST)
    told: Floats = average + slope * (sign - usual)
    return told


def _told_at_shadows(signs: Floats, known: Floats) -> float:
    """How well a sign tells each site of the others: r of the differences from the average."""
    rest = [np.arange(len(known)) != own for own in range(len(known))]
    told = [told_shares(signs[some], known[some], sign) for some, sign in zip(rest, signs, strict=True)]
    usual = np.stack([known[some].mean(0) for some in rest])
    return correlation((np.stack(told) - usual).ravel(), (known - usual).ravel())


def signs_of(view: View, base: Weights) -> dict[str, Floats]:
    """By name, numbers for each relation that may grow with its share at the site, [R]."""
    if view.predictions is not None:
        most = np.bincount(view.predictions.argmax(1), minlength=view.predictions.shape[1])
        return {"mean prediction": view.predictions.mean(0), "likeliest": most / len(view.predictions)}
    assert view.weights is not None, "a view has weights or predictions"
    rows = view.weights[CLASSIFIER].astype(np.float64)
    moved = rows - base[CLASSIFIER]
    found = {"sums of rows": rows.sum(1), "lengths of steps": np.linalg.norm(moved, axis=1)}
    return ({BIAS: view.weights[BIAS].astype(np.float64)} if BIAS in view.weights else {}) | found


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
