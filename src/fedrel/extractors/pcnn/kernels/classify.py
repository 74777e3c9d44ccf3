"""The classifier, forward and backward, with the dropout before it.

Whether dropout keeps a unit follows from a hash of (the step's seed, the sentence, the unit). So no number depends
on the one drawn before it, and whole vectors of them are drawn at once. `extractors.heads.units_kept` draws the
same in tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.memory import Shape, rounded_up, scratch
from fedrel.tensors.compiling import inner
from fedrel.tensors.simd import COLUMNS, ROWS, Floats, Ints, Matrix, multiply

_STEPS = 1 << 24  # numbers drawn have so many values, each of which float32 can represent


@inner
def draw_kept(seed: int, sentence: int, rate: float, mask: npt.NDArray[np.bool_]) -> None:
    """Draw which units of a sentence (its number in the batch) are kept, each with probability 1 - rate."""
    key = _scramble_long(np.uint64(seed) + np.uint64(sentence))
    low, high = np.uint32(key), np.uint32(key >> np.uint64(32))
    least = np.uint32(rate * _STEPS)
    for unit in range(len(mask)):
        number = _scramble(np.uint32(_scramble(np.uint32(np.uint32(unit) + low)) ^ high))
        mask[unit] = np.uint32(number >> np.uint32(8)) >= least


@inner
def _scramble_long(x: np.uint64) -> np.uint64:
    """SplitMix64's output function (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def _scramble(x: np.uint32) -> np.uint32:
    """The finaliser of MurmurHash3: every bit of the result depends on every bit of x."""
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


class Classifier(NamedTuple):
    """The classifier's weights. A unit is one filter in one piece; more units, of zeros, fill up the rows."""

    weight: Floats  # [relations, 3 * filters]; within `train`, [relations and a tile's rows, units]
    bias: Floats  # [relations], or [0]
    relations: int


class Goal(NamedTuple):
    """What is trained on: an `Objective` but for its correction. Arrays that change nothing have no rows."""

    head: int  # the bag head's number in HEADS
    scale: Floats  # [relations] of the logits, or [0]
    shift: Floats  # likewise
    fixed: Floats  # [relations and a tile's rows, units] class vectors that are not trained, or [0, units]
    weight: float  # of their cross-entropy


class Step(NamedTuple):
    """How a step of SGD is taken: weights are `kept` times what they were, less `rate` times their gradient."""

    rate: float
    kept: float  # 1 - rate * (weight decay + pull)
    dropout: float


class ClassifierWorkspace(NamedTuple):
    """Arrays to work in: the classifier's inputs and outputs, and their gradients."""

    kept: npt.NDArray[np.bool_]  # [3 * filters]
    entering: Floats  # [n and a tile's rows, units]
    turned: Floats  # [units, n rounded up to whole panels] the same, transposed
    logits: Floats  # [relations and a tile's rows, n rounded up to whole panels]; then their gradient
    fixed: Floats  # likewise, of the class vectors that are not trained
    gradient: Floats  # [n and a tile's rows, units] of the maxima
    likely: Floats  # [n] the probability of each sentence's label


@inner
def enter(
    best: Floats, count: int, seed: int, dropout: float, space: ClassifierWorkspace, shape: Shape
) -> None:
    """Apply dropout to the maxima [*, 3, slots] of so many sentences: the classifier's inputs."""
    for sentence in range(count):
        draw_kept(seed, sentence, dropout, space.kept)
        _drop(best, sentence, dropout, space, shape)
    _turn(count, space, shape)


@inner
def enter_bags(
    best: Floats, bags: Ints, seed: int, dropout: float, space: ClassifierWorkspace, shape: Shape
) -> None:
    """The same, with one mask for all sentences of a bag; bag b is sentences bags[b] to bags[b + 1]."""
    for bag in range(len(bags) - 1):
        draw_kept(seed, bag, dropout, space.kept)
        for sentence in range(bags[bag], bags[bag + 1]):
            _drop(best, sentence, dropout, space, shape)
    _turn(bags[-1], space, shape)


@inner
def _drop(best: Floats, sentence: int, dropout: float, space: ClassifierWorkspace, shape: Shape) -> None:
    factor = np.float32(1 / (1 - dropout))
    for piece in range(3):
        first = piece * shape.filters
        for filter_ in range(shape.filters):
            value = best[sentence, piece, filter_] * factor
            space.entering[sentence, first + filter_] = value if space.kept[first + filter_] else 0


@inner
def _turn(count: int, space: ClassifierWorkspace, shape: Shape) -> None:
    units = 3 * shape.filters
    for first in range(0, units, COLUMNS):  # a few cache lines at a time
        for sentence in range(count):
            for unit in range(first, min(first + COLUMNS, units)):
                space.turned[unit, sentence] = space.entering[sentence, unit]


@inner
def find_gradients(
    labels: Ints, classifier: Classifier, goal: Goal, dropout: float, space: ClassifierWorkspace, shape: Shape
) -> float:
    """The mean loss of the inputs; the gradient of the logits replaces them, and that of the maxima is found."""
    count, relations, factor = len(labels), classifier.relations, 1 / (1 - dropout)
    find_logits(count, classifier.weight, classifier.bias, space.logits, space, shape)
    loss = lose(labels, relations, goal, space) + lose_fixed(labels, relations, goal, space, shape)
    go_back(count, classifier.weight, relations, factor, 0.0, space.logits, space)
    if len(goal.fixed):
        go_back(count, goal.fixed, relations, factor, 1.0, space.fixed, space)
    stop_dropped(count, space)
    return loss


@inner
def lose(labels: Ints, relations: int, goal: Goal, space: ClassifierWorkspace) -> float:
    """The mean cross-entropy of the logits, scaled and shifted; its gradient replaces the logits."""
    count = len(labels)
    for relation in range(len(goal.scale)):
        for sentence in range(count):
            space.logits[relation, sentence] *= goal.scale[relation]
    for relation in range(len(goal.shift)):
        for sentence in range(count):
            space.logits[relation, sentence] += goal.shift[relation]
    loss = _cross_entropy(labels, relations, 1.0, space.logits)
    for relation in range(len(goal.scale)):
        for sentence in range(count):
            space.logits[relation, sentence] *= goal.scale[relation]
    return loss


@inner
def lose_fixed(labels: Ints, relations: int, goal: Goal, space: ClassifierWorkspace, shape: Shape) -> float:
    """The mean cross-entropy of the fixed class vectors, times its weight; its gradient is in `space.fixed`."""
    if len(goal.fixed) == 0:
        return 0.0
    find_logits(len(labels), goal.fixed, goal.fixed[0, :0], space.fixed, space, shape)
    return goal.weight * _cross_entropy(labels, relations, goal.weight, space.fixed)


@inner
def _cross_entropy(labels: Ints, relations: int, weight: float, logits: Floats) -> float:
    """The mean cross-entropy of the logits; its gradient, times a weight, replaces the logits."""
    count, loss, each = len(labels), 0.0, np.float32(weight) / np.float32(len(labels))
    for sentence in range(count):
        largest = logits[0, sentence]
        for relation in range(relations):
            largest = max(largest, logits[relation, sentence])
        label, total = logits[labels[sentence], sentence], np.float32(0)
        for relation in range(relations):
            raised = np.exp(logits[relation, sentence] - largest)
            logits[relation, sentence] = raised
            total += raised
        loss += np.log(total) - (label - largest)
        for relation in range(relations):
            logits[relation, sentence] *= each / total
        logits[labels[sentence], sentence] -= each
    return loss / count


@inner
def find_likelihoods(labels: Ints, classifier: Classifier, space: ClassifierWorkspace, shape: Shape) -> None:
    """The probability of each sentence's label."""
    find_logits(len(labels), classifier.weight, classifier.bias, space.logits, space, shape)
    for sentence in range(len(labels)):
        largest, total = space.logits[0, sentence], np.float32(0)
        for relation in range(classifier.relations):
            largest = max(largest, space.logits[relation, sentence])
        for relation in range(classifier.relations):
            total += np.exp(space.logits[relation, sentence] - largest)
        space.likely[sentence] = np.exp(space.logits[labels[sentence], sentence] - largest) / total


@inner
def find_logits(
    count: int, weight: Floats, bias: Floats, logits: Floats, space: ClassifierWorkspace, shape: Shape
) -> None:
    """The logits of the inputs under any class vectors [relations and a tile's rows, units]."""
    columns = space.turned.shape[1]
    left = Matrix(weight, 0, weight.shape[1], 1)
    right, result = Matrix(space.turned, 0, columns, COLUMNS), Matrix(logits, 0, columns, 1)
    whole_panels = -(-count // COLUMNS) * COLUMNS
    multiply(left, right, result, len(weight) - ROWS, whole_panels, 3 * shape.filters, 1.0, 0.0)
    for relation in range(len(bias)):
        for sentence in range(count):
            logits[relation, sentence] += bias[relation]


@inner
def go_back(
    count: int, weight: Floats, relations: int, factor: float, kept: float, logits: Floats,
    space: ClassifierWorkspace,
) -> None:  # fmt: skip
    """The gradient of the maxima: `kept` times what is there, plus `factor` times that of these logits."""
    units, columns = space.entering.shape[1], space.turned.shape[1]
    left, right = Matrix(logits, 0, 1, columns), Matrix(weight, 0, units, COLUMNS)
    multiply(left, right, Matrix(space.gradient, 0, units, 1), count, units, relations, factor, kept)


@inner
def stop_dropped(count: int, space: ClassifierWorkspace) -> None:
    """The gradient is zero where dropout or ReLU gave zero."""
    for sentence in range(count):
        for unit in range(space.entering.shape[1]):
            passed = space.entering[sentence, unit] != 0
            space.gradient[sentence, unit] = space.gradient[sentence, unit] if passed else 0


@inner
def descend(count: int, classifier: Classifier, rate: float, kept: float, space: ClassifierWorkspace) -> None:
    """A step of SGD: weights times `kept` minus `rate` times their gradient."""
    units, columns = space.entering.shape[1], space.turned.shape[1]
    left, right = Matrix(space.logits, 0, columns, 1), Matrix(space.entering, 0, units, COLUMNS)
    result = Matrix(classifier.weight, 0, units, 1)
    multiply(left, right, result, classifier.relations, units, count, -rate, kept)
    for relation in range(len(classifier.bias)):
        total = 0.0
        for sentence in range(count):
            total += space.logits[relation, sentence]
        classifier.bias[relation] = classifier.bias[relation] * kept - rate * total


def classifier_workspace_for(shape: Shape, relations: int, sentences: int) -> ClassifierWorkspace:
    """A workspace for so many sentences."""
    units, columns = rounded_up(3 * shape.filters), -(-sentences // COLUMNS) * COLUMNS
    return ClassifierWorkspace(
        kept=scratch("classifier.kept", (3 * shape.filters,), np.bool_),
        entering=scratch("classifier.entering", (sentences + ROWS, units)),
        turned=scratch("classifier.turned", (units, columns)),
        logits=scratch("classifier.logits", (relations + ROWS, columns)),
        fixed=scratch("classifier.fixed", (relations + ROWS, columns)),
        gradient=scratch("classifier.gradient", (sentences + ROWS, units)),
        likely=scratch("classifier.likely", (sentences,)),
    )
