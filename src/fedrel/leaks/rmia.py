"""RMIA: Zarifzadeh, Liu, Shokri 2024, Low-Cost High-Power Membership Inference Attacks.

A sentence that a model was trained on is likelier under it than under models that were not. How much likelier is
compared with other sentences z of the same kind, which surely were not trained on. Here the offline attack: all
reference models are trained without the sentence (section 4, appendix B.2.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SHARE_INSIDE = 0.9  # a of the paper: p_in is taken for a p_out + 1 - a; one round raises it little, so near 1
GAMMA = 1.0  # one round moves likelihoods by a few per cent: at the paper's 2, hardly a ratio would count
TIES = 1e-6  # so little that a ratio decides only between equal shares
_LEAST = 1e-12  # probability


def membership_scores(
    target: Floats, references: Floats, others: Floats, others_references: Floats
) -> Floats:
    """Eq. 3 and 4: for each x the share of the z with LR(x, z) >= gamma, from 0 to 1; equal ones by their ratio.

    `target` [x] and `others` [z] are probabilities of the labels under the attacked model, `references` [m, x] and
    `others_references` [m, z] those under m models that have seen none of them.
    """
    ratio = target / expected(references)
    least = GAMMA * np.sort(others / expected(others_references))
    share = np.searchsorted(least, ratio, side="right") / max(len(least), 1)
    scores: Floats = share + TIES * np.minimum(ratio, 1 / (TIES * 2 * max(len(least), 1)))
    return scores


def expected(references: Floats) -> Floats:
    """p(x), the likelihood under any model, with x trained on or not: ((1 + a) p_out(x) + 1 - a) / 2."""
    outside = references.mean(axis=0)
    found: Floats = np.maximum(((1 + SHARE_INSIDE) * outside + 1 - SHARE_INSIDE) / 2, _LEAST)
    return found
