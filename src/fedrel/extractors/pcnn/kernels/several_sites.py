"""`PCNN.fit_several`: one kernel trains several sites, each from the same weights, and collects their updates.

Preparing a call of the kernel takes about as long as training a small site, and a thread that comes back from a
kernel may have to wait for the interpreter. So all sites of a group share one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.pcnn.kernels.fitting import Parts, plan, weights_of, workspace_for
from fedrel.extractors.pcnn.kernels.memory import Network, Shape, shape_of
from fedrel.extractors.pcnn.kernels.simd import Floats, Ints
from fedrel.extractors.pcnn.kernels.training import Plan, Settings, Weights, Workspace, train
from fedrel.tensors.compiling import inner, kernel
from fedrel.tensors.weights import Rows

_FLAGS_AT_ONCE = 64  # flags that are looked at together: a cache line


class Dense(NamedTuple):
    """All weights but the words: those that every site starts from, or where the sites come to, site by site."""

    head: Floats
    tail: Floats
    filters: Floats
    bias: Floats
    classifier: Floats
    classifier_bias: Floats  # or one with no numbers


WORDS = "words.weight"
NAMES = (
    "head_positions",
    "tail_positions",
    "filters",
    "filters_bias",
    "classifier.weight",
    "classifier.bias",
)
"""What messages call them, in this order."""


def fit_several(
    pcnn: Network,
    start: Mapping[str, Floats],
    batch: Batch,
    several: Sequence[Sequence[Ints]],
    batch_size: int,
    lr: float,
    weight_decay: float,
    seeds: Sequence[int],
    head: str,
) -> list[tuple[Fitted, dict[str, Floats | Rows]]]:
    """`PCNN.fit_several`; `start` are the weights that the model was set to."""
    shape, weights, sites = shape_of(pcnn), weights_of(pcnn), len(several)
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, parts, sizes = plan(batch, several, batch_size, vocabulary, relations, one=head == "one")
    generator, drawn = torch.Generator(), []
    for seed, count in zip(seeds, np.diff(parts.steps).tolist(), strict=True):
        drawn.append(step_seeds(generator.manual_seed(seed), count).numpy())
    settings = Settings(float(lr), float(weight_decay), float(pcnn.dropout), np.concatenate(drawn))
    words = start.get(WORDS, np.empty((0, shape.word), np.float32))
    begin = Dense(*(_constant(start.get(name, np.empty(0, np.float32))) for name in NAMES))
    end = Dense(*(np.empty((sites, *array.shape), np.float32) for array in begin))
    scales, bounds = np.empty(sites), np.zeros(sites + 1, np.int64)
    losses, times = np.empty(len(settings.seeds)), np.zeros(len(batch.head), np.int64)
    index, values = _train_several(
        steps, parts, weights, _constant(words), begin, settings,
        workspace_for(shape, vocabulary, relations, sizes), losses, times, end, scales, bounds, shape,
    )  # fmt: skip
    found = []
    for site in range(sites):
        mine = [slice(*part[site : site + 2].tolist()) for part in (parts.steps, parts.sentences, bounds)]
        tensors: dict[str, Floats | Rows] = {
            name: array[site] for name, array in zip(NAMES, end, strict=True) if name in start
        }
        if WORDS in start:
            tensors[WORDS] = Rows(index[mine[2]], values[mine[2]], float(scales[site]))
        found.append((Fitted(losses[mine[0]], times[mine[1]]), tensors))
    return found


@kernel
def _train_several(
    plan: Plan, parts: Parts, weights: Weights, words: Floats, start: Dense, settings: Settings, space: Workspace,
    losses: npt.NDArray[np.float64], times: Ints, end: Dense, scales: npt.NDArray[np.float64], bounds: Ints,
    shape: Shape,
) -> tuple[npt.NDArray[np.int32], Floats]:  # fmt: skip
    """Train site after site. `end` gets the dense weights, `scales` the factors of rows of words that no step used.

    Returns the numbers and values of the other rows; site s has those from bounds[s] to bounds[s + 1]. The weights
    are as before, afterwards.
    """
    most, at = len(plan.words), 0  # a site changes the rows of its own words, unless the scale is folded in
    index, values = np.empty(most, np.int32), np.empty((most, weights.words.shape[1]), np.float32)
    rows = np.empty(len(weights.touched), np.int32)
    for site in range(len(scales)):
        first, last = parts.steps[site], parts.steps[site + 1]
        bags = plan.bags[:0]
        if len(plan.bags):
            bags = plan.bags[parts.bags[site] : parts.bags[site + 1] + 1]
        own = Plan(
            plan.words, plan.starts, plan.head, plan.tail, plan.labels, plan.order,
            plan.steps[first : last + 1], bags,
        )  # fmt: skip
        how = Settings(settings.rate, settings.weight_decay, settings.dropout, settings.seeds[first:last])
        scale = train(own, weights, 1.0, how, space, losses[first:last], times, shape)
        _take(weights.head, start.head, end.head[site])
        _take(weights.tail, start.tail, end.tail[site])
        _take(weights.filters, start.filters, end.filters[site])
        _take_flat(weights.bias, start.bias, end.bias[site])
        _take(weights.classifier.weight, start.classifier, end.classifier[site])
        _take_flat(weights.classifier.bias, start.classifier_bias, end.classifier_bias[site])
        changed = _find_touched(weights.touched, rows)
        if at + changed > len(index):
            index = np.concatenate((index[:at], np.empty(2 * (at + changed), np.int32)))
            values = np.concatenate(
                (values[:at], np.empty((2 * (at + changed), values.shape[1]), np.float32))
            )
        for row in rows[:changed]:
            index[at] = row
            weights.touched[row] = False
            for k in range(values.shape[1]):
                values[at, k] = weights.words[row, k] * np.float32(scale)
                weights.words[row, k] = words[row, k]
            at += 1
        if len(weights.touched):
            for k in range(values.shape[1]):
                weights.words[0, k] = 0  # the gap between sentences, whatever was sent
        scales[site], bounds[site + 1] = scale, at
    return index, values


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


@inner
def _find_touched(touched: npt.NDArray[np.bool_], rows: npt.NDArray[np.int32]) -> int:
    """The numbers of the touched rows, ascending; returns how many there are."""
    at = 0
    for first in range(0, len(touched), _FLAGS_AT_ONCE):
        some, found = touched[first : first + _FLAGS_AT_ONCE], False
        for flag in some:
            found |= flag
        if found:
            for place in range(len(some)):
                if some[place]:
                    rows[at] = first + place
                    at += 1
    return at


def _constant(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that is read only, whether the array is or not: numba compiles a kernel for each of the two."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
