"""DP-SGD (Abadi et al. 2016) without autograd: each example's gradient is clipped, and noise added to their sum.

It does what `training` does, for the heads whose example is one sentence: all sentences, or the best one of each
bag. A step's sentences are drawn independently, so a step may have none: it takes its noise all the same.

Noise moves every row of a trained table of words in every step. It is drawn when a row is read next, for all steps
since then at once: the sum of independent normal numbers is one, with the sum of their variances. What a row has
not had when the last step ends, `fit_with_noise` adds. That is `PCNN.fit_with_noise`: the arrays that the kernel
needs, and what comes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedrel.data.bags import ragged
from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import step_seeds
from fedrel.extractors.objective import Course, DPSteps, Objective
from fedrel.extractors.pcnn.kernels.bag_heads import HEADS, ONE, choose
from fedrel.extractors.pcnn.kernels.classify import Goal, Step, descend, enter, find_gradients
from fedrel.extractors.pcnn.kernels.convolution import (
    convolve_and_pool,
    follow,
    lay_out_inputs,
    pack,
    stretch,
)
from fedrel.extractors.pcnn.kernels.example_norms import NormWorkspace, clip, find_norms, norm_workspace_for
from fedrel.extractors.pcnn.kernels.fitting import forces_of, goal_of, weights_of, workspace
from fedrel.extractors.pcnn.kernels.memory import Network, Shape, Sizes, Text, shape_of
from fedrel.extractors.pcnn.kernels.training import (
    SMALLEST_SCALE,
    Forces,
    Plan,
    Weights,
    Workspace,
    add_forces,
    copy_back,
    gather_sentences,
    update_filters,
    update_inputs,
    with_padded_rows,
)
from fedrel.extractors.row_tables import GAP, RowEmbedding
from fedrel.tensors.compiling import inner, kernel
from fedrel.tensors.simd import Floats, Ints

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


class Clipping(NamedTuple):
    """How large an example's gradient may be, and the noise."""

    bound: float  # the largest norm of an example's gradient
    expected: float  # how many examples a step has on average: what their sum is divided by
    spread: float  # the standard deviation of what noise does to a weight in a step


class Noise(NamedTuple):
    """Standard normal numbers for some steps, and which noise the words' rows have had."""

    dense: Floats  # [steps, weights but words]
    words: Floats  # [rows of words that the steps read, word]
    had: npt.NDArray[np.float64]  # [vocabulary] up to which variance a stored row has had its noise; or [0]


@kernel
def train_with_noise(
    plan: Plan, weights: Weights, scale: float, due: float, goal: Goal, sgd: Step, clipping: Clipping, noise: Noise,
    forces: Forces, space: Workspace, norm_space: NormWorkspace, losses: npt.NDArray[np.float64],
    shares: npt.NDArray[np.float64], norms: npt.NDArray[np.float64], shape: Shape,
) -> tuple[float, float]:  # fmt: skip
    """Take all steps of the plan; returns the new scale of the words' rows, and the variance of noise they are due.

    `due` is that before the first of these steps. `norms` gets that of each sentence's gradient before it is
    clipped, in the order of the plan.
    """
    given, bag, row, relations = weights, 0, 0, weights.classifier.relations
    weights = with_padded_rows(given, space.filters, space.classifier, shape)
    for step in range(len(losses)):
        row = _catch_up(plan, step, due, weights, noise, row)
        text, labels, words = gather_sentences(plan, step, weights.words, scale, space.gathered, shape)
        first, losses[step] = bag, 0.0
        while bag + 1 < len(plan.bags) and plan.bags[bag] < plan.steps[step + 1]:
            bag += 1
        if len(labels):
            if len(forces.base):
                add_forces(step, words, scale, forces, space.gathered, shape)
            bags = plan.bags[first : bag + 1]
            text, labels = _read(plan.seeds[step], text, labels, words, bags, weights, goal, space, shape)
            enter(space.best, len(labels), plan.seeds[step], sgd.dropout, space.classifying, shape)
            losses[step] = find_gradients(
                labels, weights.classifier, goal, sgd.dropout, space.classifying, shape
            )
            for number in range(len(labels)):
                shares[space.gathered.numbers[number]] += 1
        lay_out_inputs(text, space.gathered.vectors, space.places, space.inputs, shape)
        follow(
            text, space.where, space.classifying.gradient, 1.0, weights.filters, space.winners, space.sentence,
            space.moves, shape,
        )  # fmt: skip
        own = norms[plan.steps[step] : plan.steps[step] + len(labels)]
        find_norms(
            text, space.gathered.used, space.where, space.inputs, space.moves, relations,
            len(weights.classifier.bias) > 0, space.classifying, norm_space, own, shape,
        )  # fmt: skip
        clip(
            own, clipping.bound, clipping.expected, -sgd.rate, text, relations, space.classifying, space.winners,
            space.moves, norm_space.factors, shape,
        )  # fmt: skip
        descend(len(labels), weights.classifier, sgd.rate, sgd.kept, space.classifying)
        _push_classifier(weights, forces)
        update_filters(weights, sgd.kept, forces, space.winners, space.inputs, shape)
        decayed = scale * sgd.kept
        scale = update_inputs(text, weights, sgd.kept, scale, forces, space.gathered.used, space.moves, shape)
        if len(noise.had):
            if abs(decayed) < SMALLEST_SCALE:  # it was applied to the stored rows: noise is due in their size
                due *= decayed**2
                for word in range(len(noise.had)):
                    noise.had[word] *= decayed**2
            due += (clipping.spread / scale) ** 2
        _add_noise(weights, clipping.spread, noise.dense[step], shape)
    copy_back(weights, given, shape)
    return scale, due


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


@inner
def _read(
    seed: int, text: Text, labels: Ints, words: int, bags: Ints, weights: Weights, goal: Goal, space: Workspace,
    shape: Shape,
) -> tuple[Text, Ints]:  # fmt: skip
    """Find the maxima of all sentences; of those of a bag, keep the best, if the head is ONE."""
    pack(weights.filters, shape.pitch, weights.bias, space.lines.numbers.shape[1], space.panels, shape)
    stretch(weights.head, space.places.head, shape)
    stretch(weights.tail, space.places.tail, shape)
    convolve_and_pool(
        text, space.gathered.vectors, words, space.panels, space.lines, space.places, space.best, space.where,
        shape,
    )  # fmt: skip
    if goal.head != ONE:
        return text, labels
    bounds = space.bounds[: len(bags)]
    for number in range(len(bags)):
        bounds[number] = bags[number] - bags[0]
    count = choose(
        seed, bounds, text, space.gathered.numbers, labels, space.best, space.where, weights.classifier,
        space.classifying, shape,
    )  # fmt: skip
    return Text(text.rows, text.starts, text.head[:count], text.tail[:count]), labels[:count]


@inner
def _push_classifier(weights: Weights, forces: Forces) -> None:
    """What a correction does to the classifier in a step."""
    for relation in range(len(forces.classifier)):
        for unit in range(forces.classifier.shape[1]):
            weights.classifier.weight[relation, unit] += forces.classifier[relation, unit]
    for relation in range(len(forces.classifier_bias)):
        weights.classifier.bias[relation] += forces.classifier_bias[relation]


@inner
def _catch_up(plan: Plan, step: int, due: float, weights: Weights, noise: Noise, row: int) -> int:
    """Add to the rows of a step's words the noise of the steps since they were read last.

    Rows of the numbers drawn are used up in order; returns the next one.
    """
    if len(noise.had) == 0:
        return row
    for number in range(plan.steps[step], plan.steps[step + 1]):
        sentence = plan.order[number]
        for token in range(plan.starts[sentence], plan.starts[sentence + 1]):
            word = plan.words[token]
            if word != GAP and noise.had[word] < due:
                spread = np.float32(np.sqrt(due - noise.had[word]))
                for k in range(weights.words.shape[1]):
                    weights.words[word, k] += spread * noise.words[row, k]
                noise.had[word] = due
                weights.touched[word] = True
                row += 1
    return row


@inner
def _add_noise(weights: Weights, spread: float, numbers: Floats, shape: Shape) -> None:
    """Add noise to all weights but words; `numbers` are [classifier, its bias, filters, biases, head, tail]."""
    at, each = 0, np.float32(spread)
    for relation in range(weights.classifier.relations):
        for unit in range(3 * shape.filters):
            weights.classifier.weight[relation, unit] += each * numbers[at + unit]
        at += 3 * shape.filters
    for relation in range(len(weights.classifier.bias)):
        weights.classifier.bias[relation] += each * numbers[at + relation]
    at += len(weights.classifier.bias)
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.width):
                weights.filters[filter_, offset * shape.pitch + k] += each * numbers[at + k]
            at += shape.width
    for filter_ in range(shape.filters):
        weights.bias[filter_] += each * numbers[at + filter_]
    at += shape.filters
    for table in (weights.head, weights.tail):
        for distance in range(len(table)):
            for k in range(shape.position):
                table[distance, k] += each * numbers[at + k]
            at += shape.position
