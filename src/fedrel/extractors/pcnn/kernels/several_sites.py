"""Several sites in one call of a kernel: each is trained from the same weights, and its update collected.

Preparing a call takes about as long as training a small site, and a thread that comes back from a kernel may have
to wait for the interpreter. So all sites of a group share one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.classify import Goal, Step
from fedrel.extractors.pcnn.kernels.memory import Shape
from fedrel.extractors.pcnn.kernels.training import SMALLEST_SCALE, Forces, Plan, Weights, Workspace, train
from fedrel.extractors.row_tables import GAP
from fedrel.tensors.array_kernels import find_touched
from fedrel.tensors.compiling import inner, kernel
from fedrel.tensors.simd import Floats, Ints


class Parts(NamedTuple):
    """Which part of a plan is whose: site s has those from number s to number s + 1 of each; [sites + 1]."""

    steps: Ints
    bags: Ints  # of all steps
    sentences: Ints


class Dense(NamedTuple):
    """All weights but the words: those that every site starts from, or where the sites come to, site by site."""

    head: Floats
    tail: Floats
    filters: Floats
    bias: Floats
    classifier: Floats
    classifier_bias: Floats  # or one with no numbers


@kernel
def train_several(
    plan: Plan, parts: Parts, weights: Weights, start: Dense, words: Floats, goal: Goal, sgd: Step, forces: Forces,
    space: Workspace, losses: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], end: Dense,
    scales: npt.NDArray[np.float64], bounds: Ints, index: npt.NDArray[np.int32], values: Floats, shape: Shape,
) -> None:  # fmt: skip
    """Train site after site; `scales` has the scale of the words' rows before, and gets the one after.

    If `end` has no place for a site, there is but one, and the weights are its afterwards. Else each site starts
    from the weights `start` and `words`, and these are the weights afterwards. `end` gets the sites' dense weights,
    `index` and `values` the numbers and values of the rows of words that changed: at site s those from bounds[s]
    to bounds[s + 1].
    """
    collecting, at = len(end.bias) > 0, 0
    for site in range(len(scales)):
        first, last = parts.steps[site], parts.steps[site + 1]
        bags = plan.bags[:0]
        if len(plan.bags):
            bags = plan.bags[parts.bags[site] : parts.bags[site + 1] + 1]
        own = Plan(
            plan.words, plan.starts, plan.head, plan.tail, plan.labels, plan.order,
            plan.steps[first : last + 1], bags, plan.seeds[first:last],
        )  # fmt: skip
        scale = train(own, weights, scales[site], goal, sgd, forces, space, losses[first:last], shares, shape)
        scales[site] = scale
        if not collecting:
            continue
        _take(weights.head, start.head, end.head[site])
        _take(weights.tail, start.tail, end.tail[site])
        _take(weights.filters, start.filters, end.filters[site])
        _take_flat(weights.bias, start.bias, end.bias[site])
        _take(weights.classifier.weight, start.classifier, end.classifier[site])
        _take_flat(weights.classifier.bias, start.classifier_bias, end.classifier_bias[site])
        for _ in range(find_touched(weights.touched, index[at:])):
            row = index[at]
            weights.touched[row] = False
            for k in range(values.shape[1]):
                values[at, k] = weights.words[row, k] * np.float32(scale)
                weights.words[row, k] = words[row, k]
            at += 1
        if len(weights.touched):
            for k in range(values.shape[1]):
                weights.words[GAP, k] = 0  # whatever was sent
        bounds[site + 1] = at


def most_changed_rows(plan: Plan, parts: Parts, vocabulary: int, sgd: Step) -> int:
    """How many rows of words the sites can change: those of their words; all if the scale is folded in."""
    longest = int(np.diff(parts.steps).max(initial=0))
    folded = abs(sgd.kept) ** longest < 2 * SMALLEST_SCALE
    return (len(parts.steps) - 1) * vocabulary if folded else len(plan.words)


@inner
def _take(weights: Floats, start: Floats, end: Floats) -> None:
    """Copy a site's weights, and set them back to those that it started from."""
    for row in range(len(end)):
        for k in range(end.shape[1]):
            end[row, k] = weights[row, k]
            weights[row, k] = start[row, k]


@inner
def _take_flat(weights: Floats, start: Floats, end: Floats) -> None:
    for k in range(len(end)):
        end[k] = weights[k]
        weights[k] = start[k]
