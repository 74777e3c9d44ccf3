"""Dropout's chance: a number for every (step's seed, sentence, unit), the same wherever and whenever it is drawn.

Numbers come from hashing what they are for. So none waits for the one before it, and whole vectors of them are
drawn at once. `extractors.dropout.units_kept` is the same in tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.memory import Shape, Text, room, whole
from fedrel.extractors.pcnn.kernels.simd import COLUMNS, ROWS, Floats, Ints, Matrix, multiply
from fedrel.tensors.compiling import inner, kernel

_STEPS = 1 << 24  # numbers drawn have as many values: every one of them is a float32


@kernel
def draw_kept(seed: int, sentence: int, rate: float, mask: npt.NDArray[np.bool_]) -> None:
    """Keep each unit of a sentence, the n-th of its batch, with probability 1 - rate."""
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
    """The finaliser of MurmurHash3: every bit of x has a hand in every bit of the result."""
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


class Classifier(NamedTuple):
    """The weights. A unit is a filter in a piece; some more, of zeros, fill up the rows."""

    weight: Floats  # [relations, 3 * filters]; while the kernel works, [relations and a tile's rows, units]
    bias: Floats  # [relations], or [0]
    relations: int


class Desk(NamedTuple):
    """Room to work in: what the classifier reads, says and is told."""

    kept: npt.NDArray[np.bool_]  # [3 * filters]
    entering: Floats  # [n and a tile's rows, units]
    turned: Floats  # [units, n up to whole panels] the same, transposed
    logits: Floats  # [relations and a tile's rows, n up to whole panels]; then the loss's gradient of them
    gradient: Floats  # [n and a tile's rows, units] of the maxima
    likely: Floats  # [n] the probability of each sentence's label


@inner
def enter(best: Floats, count: int, seed: int, dropout: float, desk: Desk, shape: Shape) -> None:
    """Let the maxima [*, 3, slots] of so many sentences enter, after dropout."""
    factor, units = np.float32(1 / (1 - dropout)), 3 * shape.filters
    for sentence in range(count):
        draw_kept(seed, sentence, dropout, desk.kept)
        for piece in range(3):
            first = piece * shape.filters
            for filter_ in range(shape.filters):
                value = best[sentence, piece, filter_] * factor
                desk.entering[sentence, first + filter_] = value if desk.kept[first + filter_] else 0
    for first in range(0, units, COLUMNS):  # a few lines of the cache at a time
        for sentence in range(count):
            for unit in range(first, min(first + COLUMNS, units)):
                desk.turned[unit, sentence] = desk.entering[sentence, unit]


@inner
def classify(labels: Ints, classifier: Classifier, desk: Desk, shape: Shape) -> float:
    """The mean cross-entropy of what has entered; its gradient of the logits takes the logits' place."""
    count, relations = len(labels), classifier.relations
    _find_logits(count, classifier, desk, shape)
    loss, each = 0.0, np.float32(1) / np.float32(count)
    for sentence in range(count):
        largest = desk.logits[0, sentence]
        for relation in range(relations):
            largest = max(largest, desk.logits[relation, sentence])
        label, total = desk.logits[labels[sentence], sentence], np.float32(0)
        for relation in range(relations):
            raised = np.exp(desk.logits[relation, sentence] - largest)
            desk.logits[relation, sentence] = raised
            total += raised
        loss += np.log(total) - (label - largest)
        for relation in range(relations):
            desk.logits[relation, sentence] *= each / total
        desk.logits[labels[sentence], sentence] -= each
    return loss / count


@inner
def find_likelihoods(labels: Ints, classifier: Classifier, desk: Desk, shape: Shape) -> None:
    """The probability of each sentence's label, by what has entered."""
    _find_logits(len(labels), classifier, desk, shape)
    for sentence in range(len(labels)):
        largest, total = desk.logits[0, sentence], np.float32(0)
        for relation in range(classifier.relations):
            largest = max(largest, desk.logits[relation, sentence])
        for relation in range(classifier.relations):
            total += np.exp(desk.logits[relation, sentence] - largest)
        desk.likely[sentence] = np.exp(desk.logits[labels[sentence], sentence] - largest) / total


@inner
def _find_logits(count: int, classifier: Classifier, desk: Desk, shape: Shape) -> None:
    columns = desk.turned.shape[1]
    left = Matrix(classifier.weight, 0, classifier.weight.shape[1], 1)
    right, result = Matrix(desk.turned, 0, columns, COLUMNS), Matrix(desk.logits, 0, columns, 1)
    whole_panels = -(-count // COLUMNS) * COLUMNS
    multiply(left, right, result, classifier.relations, whole_panels, 3 * shape.filters, 1.0, 0.0)
    for relation in range(len(classifier.bias)):
        for sentence in range(count):
            desk.logits[relation, sentence] += classifier.bias[relation]


@inner
def go_back(count: int, classifier: Classifier, dropout: float, desk: Desk) -> None:
    """The gradient of the maxima; there is none where dropout or ReLU let nothing pass."""
    units, columns = desk.entering.shape[1], desk.turned.shape[1]
    left, right = Matrix(desk.logits, 0, 1, columns), Matrix(classifier.weight, 0, units, COLUMNS)
    result = Matrix(desk.gradient, 0, units, 1)
    multiply(left, right, result, count, units, classifier.relations, 1 / (1 - dropout), 0.0)
    for sentence in range(count):
        for unit in range(units):
            passed = desk.entering[sentence, unit] != 0
            desk.gradient[sentence, unit] = desk.gradient[sentence, unit] if passed else 0


@inner
def descend(count: int, classifier: Classifier, rate: float, decay: float, desk: Desk) -> None:
    """A step of SGD: weights times `decay` minus `rate` times their gradient."""
    units, columns = desk.entering.shape[1], desk.turned.shape[1]
    left, right = Matrix(desk.logits, 0, columns, 1), Matrix(desk.entering, 0, units, COLUMNS)
    result = Matrix(classifier.weight, 0, units, 1)
    multiply(left, right, result, classifier.relations, units, count, -rate, decay)
    for relation in range(len(classifier.bias)):
        total = 0.0
        for sentence in range(count):
            total += desk.logits[relation, sentence]
        classifier.bias[relation] = classifier.bias[relation] * decay - rate * total


def desk(shape: Shape, relations: int, sentences: int) -> Desk:
    """Room for so many sentences."""
    units, columns = whole(3 * shape.filters), -(-sentences // COLUMNS) * COLUMNS
    return Desk(
        kept=room("desk.kept", (3 * shape.filters,), np.bool_),
        entering=room("desk.entering", (sentences + ROWS, units)),
        turned=room("desk.turned", (units, columns)),
        logits=room("desk.logits", (relations + ROWS, columns)),
        gradient=room("desk.gradient", (sentences + ROWS, units)),
        likely=room("desk.likely", (sentences,)),
    )


@inner
def choose(
    bags: Ints, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, classifier: Classifier,
    desk: Desk, shape: Shape,
) -> int:  # fmt: skip
    """Keep one sentence of each bag, and all that is known of it, in the bags' order: how many there are.

    Bag b of this step is sentences bags[b] - bags[0] to bags[b + 1] - bags[0]. Of equal ones the first is chosen.
    """
    count = len(bags) - 1
    if count == len(labels):
        return count
    enter(best, len(labels), 0, 0.0, desk, shape)
    find_likelihoods(labels, classifier, desk, shape)
    for bag in range(count):
        chosen = bags[bag] - bags[0]
        for sentence in range(chosen + 1, bags[bag + 1] - bags[0]):
            likely, highest = desk.likely[sentence], desk.likely[chosen]
            if not (likely <= highest or np.isnan(highest)):  # NaN is the highest: nothing may hide it
                chosen = sentence
        _move(chosen, bag, text, numbers, labels, best, where, shape)
    return count


@inner
def _move(
    sentence: int, to: int, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, shape: Shape
) -> None:
    """Put a sentence in the place of another one, which it is not before."""
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
