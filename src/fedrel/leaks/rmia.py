"""RMIA: Zarifzadeh, Liu, Shokri 2024, Low-Cost High-Power Membership Inference Attacks.

A sentence that a model was trained on is likelier under it than under models that were not. How much likelier is
compared with other sentences z of the same kind, which surely were not trained on. Here the offline attack: all
reference models are trained without the sentence (section 4, appendix B.2.2). Its two settings are chosen where the
attacker knows the truth, at its own shadow sites.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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
