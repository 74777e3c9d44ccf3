"""`PCNN.fit_with_noise`: the arrays that the kernel of DP-SGD needs, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fedrel.data.bags import ragged
from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.objective import Course, DPSteps, Objective
from fedrel.extractors.pcnn.kernels.bag_heads import HEADS, ONE
from fedrel.extractors.pcnn.kernels.classify import Step
from fedrel.extractors.pcnn.kernels.dp_training import Clipping, Noise, train_with_noise
from fedrel.extractors.pcnn.kernels.example_norms import norm_workspace_for
from fedrel.extractors.pcnn.kernels.fitting import forces_of, goal_of, weights_of, workspace
from fedrel.extractors.pcnn.kernels.memory import Network, Sizes, shape_of
from fedrel.extractors.pcnn.kernels.training import Plan, Weights
from fedrel.extractors.row_tables import GAP, RowEmbedding
from fedrel.tensors.simd import Ints

_DRAWN_AT_ONCE = 1 << 20  # normal numbers, or those of one step if these are more


def fit_with_noise(
    pcnn: Network,
    batch: Batch,
    steps: DPSteps,
    lr: float,
    weight_decay: float,
    seed: int,
    objective: Objective,
) -> tuple[Fitted, npt.NDArray[np.float64]]:
    """`PCNN.fit_with_noise`, and the norm of each example's gradient in each step before it was clipped."""
    shape, weights, head = shape_of(pcnn), weights_of(pcnn), HEADS[objective.head]
    vocabulary, relations = len(weights.words), weights.classifier.relations
    plan, sizes = _planned(batch, steps.batches, vocabulary, relations, seed, by_bags=head == ONE)
    count = len(steps.batches)
    losses, shares, norms = np.zeros(count), np.zeros(len(batch.head)), np.full(len(plan.order), np.nan)
    pull, course, courses = objective.correction.pull, Course(), np.empty((count, 2))
    for before in courses:
        before[:] = course.rest, course.drift
        course.step(lr, weight_decay, pull)
    spread = lr * steps.noise * steps.clip / steps.expected
    trains_words = len(weights.touched) > 0
    had, due, scale = np.zeros(vocabulary if trains_words else 0), 0.0, float(pcnn.words.scale)
    dense = _dense_numbers(weights)
    forces = forces_of(pcnn, objective.correction, lr, courses)
    chunk = max(1, _DRAWN_AT_ONCE // dense)
    for first in range(0, count, chunk):
        some = slice(first, min(first + chunk, count))
        part = _part(plan, some)
        rows = _distinct_words(part) if trains_words else 0
        scale, due = train_with_noise(
            part, weights, scale, due, goal_of(objective, shape, relations),
            Step(float(lr), 1 - lr * (weight_decay + pull), float(pcnn.dropout)),
            Clipping(float(steps.clip), float(steps.expected), spread),
            Noise(
                steps.draw((some.stop - first) * dense).reshape(-1, dense),
                steps.draw(rows * shape.word).reshape(rows, shape.word),
                had,
            ),
            forces._replace(courses=courses[some]),
            workspace(shape, vocabulary, relations, head, objective.fixed is not None, sizes),
            norm_workspace_for(
                shape, sizes.sentences, sizes.longest, min(sizes.tokens, vocabulary) if trains_words else 0
            ),
            losses[some], shares, norms, shape,
        )  # fmt: skip
    if isinstance(pcnn.words, RowEmbedding):
        drawn = steps.draw(weights.words.size).reshape(weights.words.shape)
        drawn *= np.sqrt(due - had).astype(np.float32)[:, None]
        drawn[GAP] = 0
        weights.words[:] += drawn
        weights.touched[:] = True  # also rows of words that no sentence has: which they are would tell
        pcnn.words.move_to(scale, course)
    return Fitted(losses, shares, -course.drift), norms[~np.isnan(norms)]


def _planned(
    batch: Batch, batches: Sequence[Ints], vocabulary: int, relations: int, seed: int, *, by_bags: bool
) -> tuple[Plan, Sizes]:
    """The sentences of every step, and the sizes of the largest step.

    Compiled code checks no bounds, so words, labels and bags are checked here.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    _check_range(words, vocabulary, "a word is not in the vocabulary")
    _check_range(labels, relations, "a label is not a relation")
    chosen = np.concatenate([np.empty(0, np.int64), *batches])
    _check_range(chosen, len(labels), "a bag is not the site's")
    assert by_bags or len(labels) == len(head), "each sentence is an example by itself"
    counts, lengths = np.diff(bags), np.diff(starts)
    bounds = np.concatenate([[0], np.cumsum(counts[chosen])])
    ends = np.cumsum([0, *map(len, batches)])
    order = ragged(bags[chosen], counts[chosen])
    steps = bounds[ends]
    tokens = np.concatenate([[0], np.cumsum(lengths[order])])[steps]
    seeds = step_seeds(torch.Generator().manual_seed(seed), len(batches)).numpy()
    of_sentences = np.repeat(labels, counts)
    sizes = Sizes(
        sentences=int(np.diff(steps).max(initial=0)),
        tokens=int(np.diff(tokens).max(initial=0)),
        longest=int(lengths[order].max(initial=0)),
    )
    kept = bounds if by_bags else order[:0]
    return Plan(words, starts, head, tail, of_sentences, order, steps, kept, seeds), sizes


def _check_range(numbers: Ints, most: int, problem: str) -> None:
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= most):
        raise IndexError(problem)


def _part(plan: Plan, some: slice) -> Plan:
    """Some of the steps of a plan."""
    steps = plan.steps[some.start : some.stop + 1]
    bags = plan.bags
    if len(bags):
        first, last = np.searchsorted(bags, steps[[0, -1]])
        bags = bags[first : last + 1]
    return plan._replace(steps=steps, bags=bags, seeds=plan.seeds[some])


def _distinct_words(plan: Plan) -> int:
    """How many words the steps have, each counted once a step."""
    total = 0
    for first, last in zip(plan.steps, plan.steps[1:], strict=False):
        own = [plan.words[plan.starts[one] : plan.starts[one + 1]] for one in plan.order[first:last]]
        total += len(np.unique(np.concatenate(own))) if own else 0
    return total


def _dense_numbers(weights: Weights) -> int:
    """How many weights there are beside those of words."""
    classifier = weights.classifier
    dense = (classifier.weight, classifier.bias, weights.filters, weights.bias, weights.head, weights.tail)
    return sum(array.size for array in dense)
