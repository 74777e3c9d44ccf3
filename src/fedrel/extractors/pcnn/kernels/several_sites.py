"""Several sites in one call of a kernel: each is trained from the same weights, and its update collected.

Preparing a call takes about as long as training a small site, and a thread that comes back from a kernel may have
to wait for the interpreter. So all sites of a group share one. `plan` says which sentences each step takes, for one
site or for several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import step_seeds
from fedrel.extractors.pcnn.kernels.classify import Goal, Step
from fedrel.extractors.pcnn.kernels.memory import Shape, Sizes
from fedrel.extractors.pcnn.kernels.training import SMALLEST_SCALE, Forces, Plan, Weights, Workspace, train
from fedrel.extractors.row_tables import GAP
from fedrel.tensors.array_kernels import find_touched
from fedrel.tensors.compiling import allocating_kernel, inner, kernel
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
    folded = min(abs(sgd.kept), 1.0) ** longest < 2 * SMALLEST_SCALE
    return (len(parts.steps) - 1) * vocabulary if folded else len(plan.words)


def plan(
    batch: Batch, several: Sequence[Sequence[Ints]], batch_size: int, vocabulary: int, relations: int,
    seeds: Sequence[int], *, by_bags: bool,
) -> tuple[Plan, Parts, Sizes]:  # fmt: skip
    """The sentences of every step, `batch_size` bags in each epoch's order, and the sizes of the largest step.

    `several` has the orders of each site: the batch has the first site's bags, then the second's, and so on.
    `by_bags`: the head reads bags, and needs to know where they begin.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    counts = np.array([[len(orders), len(orders[0]) if orders else 0] for orders in several])
    of_bags = np.concatenate([np.empty(0, np.int64), *(each for orders in several for each in orders)])
    order, steps, of_sentences, bounds, parts, sizes = _lay_out(
        of_bags, counts, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    drawn = [
        step_seeds(torch.Generator().manual_seed(seed), count).numpy()
        for seed, count in zip(seeds, np.diff(parts[0]).tolist(), strict=True)
    ]
    bounds = bounds if by_bags else order[:0]
    found = Plan(words, starts, head, tail, of_sentences, order, steps, bounds, np.concatenate(drawn))
    return found, Parts(*parts), Sizes(*sizes)


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


@allocating_kernel
def _lay_out(
    orders: Ints, counts: Ints, bags: Ints, labels: Ints, starts: Ints, words: Ints, batch_size: int,
    vocabulary: int, relations: int,
) -> tuple[Ints, Ints, Ints, Ints, tuple[Ints, Ints, Ints], tuple[int, int, int]]:  # fmt: skip
    """A plan's order, steps, labels and bags; whose they are; and sizes. counts: epochs and bags of each site.

    Compiled code checks no bounds, so words, labels and bags are checked here.
    """
    for word in words:
        if word < 0 or word >= vocabulary:
            raise IndexError("a word is not in the vocabulary")
    sites, total_steps, total_bags, total = len(counts), 0, 0, 0
    parts = np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64)
    first = 0  # of a site's bags
    for site in range(sites):
        epochs, count = counts[site]
        if first + count > len(labels):
            raise IndexError("a site has more bags than there are")
        total_steps += epochs * -(-count // batch_size)
        total_bags += epochs * count
        total += epochs * (bags[first + count] - bags[first])
        first += count
        parts[2][site + 1] = bags[first]
    order, at = np.empty(total, np.int64), 0
    bounds, bag = np.zeros(total_bags + 1, np.int64), 0
    steps, step = np.zeros(total_steps + 1, np.int64), 0
    most_sentences, most_tokens, longest, first = 0, 0, 0, 0
    for site in range(sites):
        epochs, count = counts[site]
        for _ in range(epochs):
            upto = bag + count
            while bag < upto:
                tokens = 0
                for _ in range(min(batch_size, upto - bag)):
                    if orders[bag] < 0 or orders[bag] >= count:
                        raise IndexError("a bag is not the site's")
                    chosen = first + orders[bag]
                    for sentence in range(bags[chosen], bags[chosen + 1]):
                        order[at] = sentence
                        at += 1
                        length = starts[sentence + 1] - starts[sentence]
                        tokens, longest = tokens + length, max(longest, length)
                    bag += 1
                    bounds[bag] = at
                step += 1
                steps[step] = at
                most_sentences = max(most_sentences, at - steps[step - 1])
                most_tokens = max(most_tokens, tokens)
        first += count
        parts[0][site + 1], parts[1][site + 1] = step, bag
    of_sentences = np.empty(len(starts) - 1, np.int64)
    for bag in range(len(labels)):
        if labels[bag] < 0 or labels[bag] >= relations:
            raise IndexError("a label is not a relation")
        of_sentences[bags[bag] : bags[bag + 1]] = labels[bag]
    return order, steps, of_sentences, bounds, parts, (most_sentences, most_tokens, longest)
