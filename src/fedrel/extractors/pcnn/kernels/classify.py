"""The classifier, forward and backward, with the dropout before it and the choice of one sentence a bag (ONE).

Whether dropout keeps a unit follows from a hash of (the step's seed, the sentence, the unit). So no number depends
on the one drawn before it, and whole vectors of them are drawn at once. `extractors.dropout.units_kept` draws the
same in tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.memory import Shape, Text, rounded_up, scratch
from fedrel.extractors.pcnn.kernels.simd import COLUMNS, ROWS, Floats, Ints, Matrix, multiply
from fedrel.tensors.compiling import inner, kernel

_STEPS = 1 << 24  # numbers drawn have so many values, each of which float32 can represent


@kernel
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


class ClassifierWorkspace(NamedTuple):
    """Arrays to work in: the classifier's inputs and outputs, and their gradients."""

    kept: npt.NDArray[np.bool_]  # [3 * filters]
    entering: Floats  # [n and a tile's rows, units]
    turned: Floats  # [units, n rounded up to whole panels] the same, transposed
    logits: Floats  # [relations and a tile's rows, n rounded up to whole panels]; then their gradient
    gradient: Floats  # [n and a tile's rows, units] of the maxima
    likely: Floats  # [n] the probability of each sentence's label


@inner
def enter(
    best: Floats, count: int, seed: int, dropout: float, space: ClassifierWorkspace, shape: Shape
) -> None:
    """Apply dropout to the maxima [*, 3, slots] of so many sentences: the classifier's inputs."""
    factor, units = np.float32(1 / (1 - dropout)), 3 * shape.filters
    for sentence in range(count):
        draw_kept(seed, sentence, dropout, space.kept)
        for piece in range(3):
            first = piece * shape.filters
            for filter_ in range(shape.filters):
                value = best[sentence, piece, filter_] * factor
                space.entering[sentence, first + filter_] = value if space.kept[first + filter_] else 0
    for first in range(0, units, COLUMNS):  # a few cache lines at a time
        for sentence in range(count):
            for unit in range(first, min(first + COLUMNS, units)):
                space.turned[unit, sentence] = space.entering[sentence, unit]


@inner
def classify(labels: Ints, classifier: Classifier, space: ClassifierWorkspace, shape: Shape) -> float:
    """The mean cross-entropy of the inputs; its gradient replaces the logits."""
    count, relations = len(labels), classifier.relations
    _find_logits(count, classifier, space, shape)
    loss, each = 0.0, np.float32(1) / np.float32(count)
    for sentence in range(count):
        largest = space.logits[0, sentence]
        for relation in range(relations):
            largest = max(largest, space.logits[relation, sentence])
        label, total = space.logits[labels[sentence], sentence], np.float32(0)
        for relation in range(relations):
            raised = np.exp(space.logits[relation, sentence] - largest)
            space.logits[relation, sentence] = raised
            total += raised
        loss += np.log(total) - (label - largest)
        for relation in range(relations):
            space.logits[relation, sentence] *= each / total
        space.logits[labels[sentence], sentence] -= each
    return loss / count


@inner
def find_likelihoods(labels: Ints, classifier: Classifier, space: ClassifierWorkspace, shape: Shape) -> None:
    """The probability of each sentence's label."""
    _find_logits(len(labels), classifier, space, shape)
    for sentence in range(len(labels)):
        largest, total = space.logits[0, sentence], np.float32(0)
        for relation in range(classifier.relations):
            largest = max(largest, space.logits[relation, sentence])
        for relation in range(classifier.relations):
            total += np.exp(space.logits[relation, sentence] - largest)
        space.likely[sentence] = np.exp(space.logits[labels[sentence], sentence] - largest) / total


@inner
def _find_logits(count: int, classifier: Classifier, space: ClassifierWorkspace, shape: Shape) -> None:
    columns = space.turned.shape[1]
    left = Matrix(classifier.weight, 0, classifier.weight.shape[1], 1)
    right, result = Matrix(space.turned, 0, columns, COLUMNS), Matrix(space.logits, 0, columns, 1)
    whole_panels = -(-count // COLUMNS) * COLUMNS
    multiply(left, right, result, classifier.relations, whole_panels, 3 * shape.filters, 1.0, 0.0)
    for relation in range(len(classifier.bias)):
        for sentence in range(count):
            space.logits[relation, sentence] += classifier.bias[relation]


@inner
def go_back(count: int, classifier: Classifier, dropout: float, space: ClassifierWorkspace) -> None:
    """The gradient of the maxima; it is zero where dropout or ReLU gave zero."""
    units, columns = space.entering.shape[1], space.turned.shape[1]
    left, right = Matrix(space.logits, 0, 1, columns), Matrix(classifier.weight, 0, units, COLUMNS)
    result = Matrix(space.gradient, 0, units, 1)
    multiply(left, right, result, count, units, classifier.relations, 1 / (1 - dropout), 0.0)
    for sentence in range(count):
        for unit in range(units):
            passed = space.entering[sentence, unit] != 0
            space.gradient[sentence, unit] = space.gradient[sentence, unit] if passed else 0


@inner
def descend(
    count: int, classifier: Classifier, rate: float, decay: float, space: ClassifierWorkspace
) -> None:
    """A step of SGD: weights times `decay` minus `rate` times their gradient."""
    units, columns = space.entering.shape[1], space.turned.shape[1]
    left, right = Matrix(space.logits, 0, columns, 1), Matrix(space.entering, 0, units, COLUMNS)
    result = Matrix(classifier.weight, 0, units, 1)
    multiply(left, right, result, classifier.relations, units, count, -rate, decay)
    for relation in range(len(classifier.bias)):
        total = 0.0
        for sentence in range(count):
            total += space.logits[relation, sentence]
        classifier.bias[relation] = classifier.bias[relation] * decay - rate * total


def classifier_workspace_for(shape: Shape, relations: int, sentences: int) -> ClassifierWorkspace:
    """A workspace for so many sentences."""
    units, columns = rounded_up(3 * shape.filters), -(-sentences // COLUMNS) * COLUMNS
    return ClassifierWorkspace(
        kept=scratch("classifier.kept", (3 * shape.filters,), np.bool_),
        entering=scratch("classifier.entering", (sentences + ROWS, units)),
        turned=scratch("classifier.turned", (units, columns)),
        logits=scratch("classifier.logits", (relations + ROWS, columns)),
        gradient=scratch("classifier.gradient", (sentences + ROWS, units)),
        likely=scratch("classifier.likely", (sentences,)),
    )


@inner
def choose(
    bags: Ints, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, classifier: Classifier,
    space: ClassifierWorkspace, shape: Shape,
) -> int:  # fmt: skip
    """Keep the likeliest sentence of each bag, with all its columns, in the bags' order; returns their number.

    Bag b of this step is sentences bags[b] - bags[0] to bags[b + 1] - bags[0]. Of equally likely ones the first is
    kept.
    """
    count = len(bags) - 1
    if count == len(labels):
        return count
    enter(best, len(labels), 0, 0.0, space, shape)
    find_likelihoods(labels, classifier, space, shape)
    for bag in range(count):
        chosen = bags[bag] - bags[0]
        for sentence in range(chosen + 1, bags[bag + 1] - bags[0]):
            likely, highest = space.likely[sentence], space.likely[chosen]
            if not (
                likely <= highest or np.isnan(highest)
            ):  # NaN counts as highest, so that the loss shows it
                chosen = sentence
        _move(chosen, bag, text, numbers, labels, best, where, shape)
    return count


@inner
def _move(
    sentence: int, to: int, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, shape: Shape
) -> None:
    """Move a sentence to the place of an earlier one, or of its own."""
    begin, length = text.starts[sentence], text.starts[sentence + 1] - text.starts[sentence]
    for token in range(length):
        text.rows[text.starts[to] + token] = text.rows[begin + token]
    text.starts[to + 1] = text.starts[to] + length
    text.head[to], text.tail[to] = text.head[sentence], text.tail[sentence]
    numbers[to], labels[to] = numbers[sentence], labels[sentence]
    for piece in range(3):
        for filter_ in range(shape.filters):
            best[to, piece, filter_] = best[sentence, piece, filter_]
            where[to, piece, filter_] = where[sentence, piece, filter_]
