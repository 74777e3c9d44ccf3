"""DAGER: Petrov, Dimitrov, Baader, Müller, Vechev 2024, DAGER: Exact Gradient Inversion for Large Language Models.

The gradient of a linear layer is a sum over tokens of an output's gradient times the layer's input, dL/dW = sum of
δ xᵀ. While a batch has fewer tokens than a token has numbers, its rows span just the inputs that occurred. The
inputs of a transformer's first layer depend on nothing but a token and its place, so each of them can be computed,
and is in the batch if it lies in the span (section 5, the first step of Algorithm 1). Plain SGD's update is a sum
of such gradients. It works while embeddings are those that the attacker knows and nothing is dropped in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEAR = 0.01  # of an input's length: how far from the span it may be
_FLOAT32 = 2.0**-24  # the relative rounding of a weight


def span(steps: Sequence[Floats], largest: float) -> Floats | None:
    """A basis of the rows of some layers' steps, [r, d]; None if they span everything, so that all would fit.

    `largest` is the largest weight: what rounding it may explain is no direction.
    """
    stacked = np.concatenate(steps).astype(np.float64)
    _, size, rows = np.linalg.svd(stacked, full_matrices=False)
    rounding = largest * _FLOAT32 * (np.sqrt(len(stacked)) + np.sqrt(stacked.shape[1]))
    basis: Floats = rows[size > max(rounding, 1e-6 * size[0])]
    return None if len(basis) >= stacked.shape[1] else basis


def distances(basis: Floats, inputs: Floats | npt.NDArray[np.float32]) -> Floats:
    """How far each input is from the span, in parts of its length; of float32, to a thousandth."""
    lengths = np.maximum(np.linalg.norm(inputs, axis=1), 1e-12)
    inside = inputs @ basis.T.astype(inputs.dtype)
    outside = np.maximum(lengths**2 - np.square(inside).sum(1), 0)
    found: Floats = np.sqrt(outside) / lengths
    return found


def token_f1(found: AbstractSet[int], true: AbstractSet[int]) -> float:
    """F1 of tokens, wherever they are: sums of inputs of one token at two places can be inputs at a third.

    >>> token_f1({1, 2}, {1, 3, 4})
    0.4
    """
    return 2 * len(found & true) / max(len(found) + len(true), 1)


def rouge(n: int, found: Sequence[int], true: Sequence[int]) -> float:
    """ROUGE-N as F1: of all runs of n tokens, those that both have.

    >>> rouge(1, [1, 2, 3], [1, 2, 4]), rouge(2, [1, 2, 3], [1, 2, 4])
    (0.6666666666666666, 0.5)
    """
    runs = [Counter(zip(*(text[start:] for start in range(n)), strict=False)) for text in (found, true)]
    both, total = sum((runs[0] & runs[1]).values()), sum(sum(one.values()) for one in runs)
    return 2 * both / max(total, 1)
