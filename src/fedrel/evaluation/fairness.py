"""Does every site get something out of it? The worst site and the spread, beside the mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TypedDict

import numpy as np


class Fairness(TypedDict):
    """A metric over the sites; sites count alike, whatever they hold."""

    mean: float
    spread: float
    worst: float
    worst_site: int
    best: float
    best_site: int
    sites: int


def fairness(values: Sequence[float | None]) -> Fairness | None:
    """Sum up a metric's value at each site, in site order, where higher is better; None if no site has one.

    A site that nothing can be measured at is None or NaN. `sites` is how many others there are, `spread` their
    standard deviation; among equals, the first is named.

    >>> fairness([0.5, None, 0.9])["worst_site"]
    0
    """
    there = [
        (float(value), site) for site, value in enumerate(values) if value is not None and not isnan(value)
    ]
    if not there:
        return None
    worst, worst_site = min(there)
    best, best_site = min(there, key=lambda one: (-one[0], one[1]))
    measured = np.array([value for value, _ in there])
    return Fairness(
        mean=float(measured.mean()),
        spread=float(measured.std()),
        worst=worst,
        worst_site=worst_site,
        best=best,
        best_site=best_site,
        sites=len(there),
    )
