"""How well scores tell two groups apart: the area under the ROC curve, and the hits at few false alarms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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


def correlation(found: Floats, true: Floats) -> float:
    """Pearson's r; 0 where one side does not vary."""
    found, true = found - found.mean(), true - true.mean()
    length = float(np.sqrt((found**2).sum() * (true**2).sum()))
    return float((found * true).sum() / length) if length > 0 else 0.0
