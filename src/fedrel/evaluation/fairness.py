"""Does every site get something out of it? The metric at each site, the worst and the spread, beside the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.classification import Classification


class Fairness(TypedDict):
    """A metric over the sites; sites count alike, whatever they hold."""

    mean: float
    spread: float
    worst: float
    worst_site: str
    best: float
    best_site: str
    measured: int


class AtSites(TypedDict):
    """What `result.json` says of the sites: which metric, its value at each, and their fairness."""

    metric: str
    values: dict[str, float | None]
    fairness: Fairness | None


def at_sites(outcome: Classification, shares: Mapping[str, NDArray[np.int64]], metric: str) -> AtSites:
    """A metric at each site, on its share of the sentences; `shares` has their places in `outcome`, by site.

    None where there is nothing to measure. That is a share without sentences and, but for the accuracy, one with
    `NA` alone: of nothing to find, all and none have been found.
    """
    values: dict[str, float | None] = {}
    for site, places in shares.items():
        own = replace(outcome, predicted=outcome.predicted[places], gold=outcome.gold[places])
        meaningful = len(own.gold) > 0 if metric == "accuracy" else bool(own.gold.any())
        values[site] = own.metrics()[metric] if meaningful else None
    return AtSites(metric=metric, values=values, fairness=fairness(values))


def fairness(values: Mapping[str, float | None]) -> Fairness | None:
    """Sum up a metric's value at each site, where higher is better; None if no site has one.

    A site that nothing can be measured at is None or NaN. `measured` is how many others there are, `spread` their
    standard deviation; among equals, the first is named.

    >>> fairness({"a": 0.5, "b": None, "c": 0.9})["worst_site"]
    'a'
    """
    there = {site: float(value) for site, value in values.items() if value is not None and not isnan(value)}
    if not there:
        return None
    worst_site, best_site = min(there, key=there.__getitem__), max(there, key=there.__getitem__)
    measured = np.array(list(there.values()))
    return Fairness(
        mean=float(measured.mean()),
        spread=float(measured.std()),
        worst=there[worst_site],
        worst_site=worst_site,
        best=there[best_site],
        best_site=best_site,
        measured=len(there),
    )
