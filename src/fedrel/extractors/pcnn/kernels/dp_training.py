"""DP-SGD (Abadi et al. 2016) without autograd: each example's gradient is clipped, and noise added to their sum.

It does what `training` does, for the heads whose example is one sentence: all sentences, or the best one of each
bag. A step's sentences are drawn independently, so a step may have none: it takes its noise all the same.

Noise moves every row of a trained table of words in every step. It is drawn when a row is read next, for all steps
since then at once: the sum of independent normal numbers is one, with the sum of their variances. What a row has
not had when the last step ends, the caller adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.bag_heads import ONE, choose
from fedrel.extractors.pcnn.kernels.classify import Goal, Step, descend, enter, find_gradients
from fedrel.extractors.pcnn.kernels.convolution import (
    convolve_and_pool,
    follow,
    lay_out_inputs,
    pack,
    stretch,
)
from fedrel.extractors.pcnn.kernels.example_norms import NormWorkspace, clip, find_norms
from fedrel.extractors.pcnn.kernels.memory import Shape, Text
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
from fedrel.extractors.row_tables import GAP
from fedrel.tensors.compiling import inner, kernel
from fedrel.tensors.simd import Floats, Ints


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
