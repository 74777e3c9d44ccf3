"""Bag heads in training: how the sentences of a step's bags become what the classifier reads, and back.

`fedrel.extractors.heads` has the equations. Bag b of a step is its sentences bags[b] to bags[b + 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrel.extractors.pcnn.kernels.classify import (
    Classifier,
    ClassifierWorkspace,
    Goal,
    Step,
    descend,
    enter,
    enter_bags,
    find_gradients,
    find_likelihoods,
    find_logits,
    go_back,
    lose,
    lose_fixed,
    stop_dropped,
)
from fedrel.extractors.pcnn.kernels.memory import Shape, Text, rounded_up, scratch
from fedrel.tensors.compiling import inner
from fedrel.tensors.simd import COLUMNS, ROWS, Floats, Ints, Matrix, multiply

HEADS = {"none": 0, "one": 1, "ave": 2, "att": 3, "att_ra": 4}
NONE, ONE, AVE, ATT, ATT_RA = HEADS.values()


class BagWorkspace(NamedTuple):
    """Arrays to work in, for the heads that mix the sentences of a bag; of a head that does not, they are small."""

    pooled: Floats  # [bags, 3, slots] the bags' vectors
    attention: Floats  # [n] how much each sentence counts in its bag
    slopes: Floats  # [n] the gradient of what the attention is a softmax of
    whole: Floats  # [n and a tile's rows, units] the sentences' vectors without dropout
    scores: Floats  # [relations and a tile's rows, n rounded up] ATT_RA: products of those with dropout
    shares: Floats  # likewise: `attention` for each relation
    bends: Floats  # likewise: `slopes` for each relation
    extra: Floats  # [n, units] the gradient that comes from the fixed class vectors


def bag_workspace_for(head: int, fixed: bool, shape: Shape, relations: int, sentences: int) -> BagWorkspace:
    """A workspace for so many sentences in as many bags."""
    units, columns = rounded_up(3 * shape.filters), -(-sentences // COLUMNS) * COLUMNS
    mixed, each = sentences if head >= AVE else 0, head == ATT_RA
    grid = (relations + ROWS, columns if each else 0)
    return BagWorkspace(
        pooled=scratch("bags.pooled", (mixed, 3, shape.slots)),
        attention=scratch("bags.attention", (mixed,)),
        slopes=scratch("bags.slopes", (mixed,)),
        whole=scratch("bags.whole", (sentences + ROWS if each else 0, units)),
        scores=scratch("bags.scores", grid),
        shares=scratch("bags.shares", grid),
        bends=scratch("bags.bends", grid),
        extra=scratch("bags.extra", (sentences if each and fixed else 0, units)),
    )


@inner
def mixes(head: int, bags: Ints, sentences: int) -> bool:
    """Whether a head mixes sentences: where every bag is one sentence, every head reads that."""
    return head >= AVE and len(bags) - 1 < sentences


@inner
def learn(
    seed: int, bags: Ints, labels: Ints, best: Floats, classifier: Classifier, goal: Goal, step: Step,
    space: BagWorkspace, classifying: ClassifierWorkspace, shape: Shape,
) -> float:  # fmt: skip
    """The loss of a step as the bag head reads it, a step of the classifier, and the gradient of the maxima.

    `labels` are the sentences'; where sentences are mixed, the first ones become those of the bags.
    """
    if not mixes(goal.head, bags, len(labels)):
        enter(best, len(labels), seed, step.dropout, classifying, shape)
        loss = find_gradients(labels, classifier, goal, step.dropout, classifying, shape)
        descend(len(labels), classifier, step.rate, step.kept, classifying)
        return loss
    of_bags = labels[: len(bags) - 1]
    for bag in range(len(of_bags)):
        of_bags[bag] = labels[bags[bag]]
    if goal.head == ATT_RA:
        return _learn_relations(bags, of_bags, best, classifier, goal, seed, step, space, classifying, shape)
    return _learn_bags(bags, of_bags, best, classifier, goal, seed, step, space, classifying, shape)


@inner
def _learn_bags(
    bags: Ints, labels: Ints, best: Floats, classifier: Classifier, goal: Goal, seed: int, step: Step,
    space: BagWorkspace, classifying: ClassifierWorkspace, shape: Shape,
) -> float:  # fmt: skip
    """AVE and ATT: the loss of the bags' vectors, a step of the classifier, and the sentences' gradients."""
    attending = goal.head != AVE
    if attending:
        _attend(bags, labels, best, classifier.weight, space, shape)
    else:
        for bag in range(len(labels)):
            for sentence in range(bags[bag], bags[bag + 1]):
                space.attention[sentence] = np.float32(1) / np.float32(bags[bag + 1] - bags[bag])
    _mix(bags, best, space, shape)
    enter(space.pooled, len(labels), seed, step.dropout, classifying, shape)
    loss = find_gradients(labels, classifier, goal, step.dropout, classifying, shape)
    _spread(bags, labels, best, classifier.weight, attending, space, classifying.gradient, shape)
    descend(len(labels), classifier, step.rate, step.kept, classifying)
    if attending:
        _descend_queries(bags, labels, best, classifier.weight, step.rate, space, shape)
    return loss


@inner
def _learn_relations(
    bags: Ints, labels: Ints, best: Floats, classifier: Classifier, goal: Goal, seed: int, step: Step,
    space: BagWorkspace, classifying: ClassifierWorkspace, shape: Shape,
) -> float:  # fmt: skip
    """ATT_RA: the loss of the bags' logits, a step of the classifier, and the sentences' gradients."""
    count, relations, weight, loss = bags[-1], classifier.relations, classifier.weight, 0.0
    factor = 1 / (1 - step.dropout)
    if len(goal.fixed):  # it reads the label's vector, as ATT does
        _attend(bags, labels, best, weight, space, shape)
        _mix(bags, best, space, shape)
        enter(space.pooled, len(labels), seed, step.dropout, classifying, shape)
        loss += lose_fixed(labels, relations, goal, classifying, shape)
        go_back(len(labels), goal.fixed, relations, factor, 0.0, classifying.fixed, classifying)
        stop_dropped(len(labels), classifying)
        _spread(bags, labels, best, weight, goal.head != AVE, space, classifying.gradient, shape)
        for sentence in range(count):
            for unit in range(space.extra.shape[1]):
                space.extra[sentence, unit] = classifying.gradient[sentence, unit]

    enter(best, count, seed, 0.0, classifying, shape)  # no dropout, whatever the seed
    find_logits(count, weight, classifier.bias[:0], space.shares, classifying, shape)
    for sentence in range(count):
        for unit in range(space.whole.shape[1]):
            space.whole[sentence, unit] = classifying.entering[sentence, unit]
    enter_bags(best, bags, seed, step.dropout, classifying, shape)
    find_logits(count, weight, classifier.bias[:0], space.scores, classifying, shape)
    _pool_relations(bags, classifier, space, classifying.logits)
    loss += lose(labels, relations, goal, classifying)
    _spread_relations(bags, relations, space, classifying.logits)

    units, columns = space.whole.shape[1], space.bends.shape[1]
    go_back(count, weight, relations, factor, 0.0, classifying.logits, classifying)
    stop_dropped(count, classifying)
    go_back(count, weight, relations, 1.0, 1.0, space.bends, classifying)
    for sentence in range(len(space.extra[:count])):
        for unit in range(units):
            classifying.gradient[sentence, unit] += space.extra[sentence, unit]
    descend(count, classifier, step.rate, step.kept, classifying)
    left, right = Matrix(space.bends, 0, columns, 1), Matrix(space.whole, 0, units, COLUMNS)
    multiply(left, right, Matrix(weight, 0, units, 1), relations, units, count, -step.rate, 1.0)
    if len(goal.fixed):
        _descend_queries(bags, labels, best, weight, step.rate, space, shape)
    for bag in range(len(labels)):
        for sentence in range(bags[bag], bags[bag + 1]):
            space.attention[sentence] = space.shares[labels[bag], sentence]
    return loss


@inner
def _attend(
    bags: Ints, labels: Ints, best: Floats, weight: Floats, space: BagWorkspace, shape: Shape
) -> None:
    """a_i = softmax_i(x_i . w_label)."""
    for bag in range(len(labels)):
        first, last, row = bags[bag], bags[bag + 1], weight[labels[bag]]
        if last - first == 1:
            space.attention[first] = 1
            continue
        largest = np.float32(-np.inf)
        for sentence in range(first, last):
            space.attention[sentence] = _product(best[sentence], row, shape)
            largest = max(largest, space.attention[sentence])
        total = np.float32(0)
        for sentence in range(first, last):
            space.attention[sentence] = np.exp(space.attention[sentence] - largest)
            total += space.attention[sentence]
        for sentence in range(first, last):
            space.attention[sentence] /= total


@inner
def _product(vector: Floats, row: Floats, shape: Shape) -> float:
    """The product of maxima [3, slots] and a row [units]."""
    total = 0.0
    for piece in range(3):
        for filter_ in range(shape.filters):
            total += vector[piece, filter_] * row[piece * shape.filters + filter_]
    return total


@inner
def _mix(bags: Ints, best: Floats, space: BagWorkspace, shape: Shape) -> None:
    """The bags' vectors, sum_i a_i x_i."""
    for bag in range(len(bags) - 1):
        for piece in range(3):
            for filter_ in range(shape.filters):
                space.pooled[bag, piece, filter_] = 0
            for sentence in range(bags[bag], bags[bag + 1]):
                share = space.attention[sentence]
                for filter_ in range(shape.filters):
                    space.pooled[bag, piece, filter_] += share * best[sentence, piece, filter_]


@inner
def _spread(
    bags: Ints, labels: Ints, best: Floats, weight: Floats, attending: bool, space: BagWorkspace,
    gradient: Floats, shape: Shape,
) -> None:  # fmt: skip
    """From the gradient g of the bags' vectors to that of their sentences', in place: the last comes first.

    a_i g, and through the attention a_i (x_i . g - sum_j a_j x_j . g) w_label.
    """
    for bag in range(len(labels) - 1, -1, -1):
        first, last, row, mean = bags[bag], bags[bag + 1], weight[labels[bag]], 0.0
        for sentence in range(first, last):
            space.slopes[sentence] = 0
        if attending and last - first > 1:
            for sentence in range(first, last):
                space.slopes[sentence] = _product(best[sentence], gradient[bag], shape)
                mean += space.attention[sentence] * space.slopes[sentence]
            for sentence in range(first, last):
                space.slopes[sentence] = space.attention[sentence] * (space.slopes[sentence] - mean)
        for sentence in range(last - 1, first - 1, -1):
            share, slope = space.attention[sentence], space.slopes[sentence]
            for unit in range(gradient.shape[1]):
                gradient[sentence, unit] = share * gradient[bag, unit] + slope * row[unit]


@inner
def _descend_queries(
    bags: Ints, labels: Ints, best: Floats, weight: Floats, rate: float, space: BagWorkspace, shape: Shape
) -> None:
    """The step of the classifier's rows as queries of the attention."""
    for bag in range(len(labels)):
        for sentence in range(bags[bag], bags[bag + 1]):
            step = np.float32(-rate) * space.slopes[sentence]
            for piece in range(3):
                for filter_ in range(shape.filters):
                    unit = piece * shape.filters + filter_
                    weight[labels[bag], unit] += step * best[sentence, piece, filter_]


@inner
def _pool_relations(bags: Ints, classifier: Classifier, space: BagWorkspace, logits: Floats) -> None:
    """Each relation's attention, in place of the products that it is a softmax of, and the bags' logits."""
    for relation in range(classifier.relations):
        bias = classifier.bias[relation] if len(classifier.bias) else np.float32(0)
        shares, scores = space.shares[relation], space.scores[relation]
        for bag in range(len(bags) - 1):
            largest, total, pooled = np.float32(-np.inf), np.float32(0), np.float32(0)
            for sentence in range(bags[bag], bags[bag + 1]):
                largest = max(largest, shares[sentence])
            for sentence in range(bags[bag], bags[bag + 1]):
                shares[sentence] = np.exp(shares[sentence] - largest)
                total += shares[sentence]
            for sentence in range(bags[bag], bags[bag + 1]):
                shares[sentence] /= total
                pooled += shares[sentence] * scores[sentence]
            logits[relation, bag] = pooled + bias


@inner
def _spread_relations(bags: Ints, relations: int, space: BagWorkspace, logits: Floats) -> None:
    """From the gradient g_r of the bags' logits to that of their sentences' products, in place.

    a_ir g_r of those with dropout, a_ir g_r (s_ir - sum_j a_jr s_jr) of those that the attention is a softmax of.
    """
    for relation in range(relations):
        shares, scores, bends = space.shares[relation], space.scores[relation], space.bends[relation]
        for bag in range(len(bags) - 2, -1, -1):
            slope, mean = logits[relation, bag], np.float32(0)
            for sentence in range(bags[bag], bags[bag + 1]):
                mean += shares[sentence] * scores[sentence]
            for sentence in range(bags[bag + 1] - 1, bags[bag] - 1, -1):
                logits[relation, sentence] = shares[sentence] * slope
                bends[sentence] = shares[sentence] * slope * (scores[sentence] - mean)


@inner
def choose(
    seed: int, bags: Ints, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats,
    classifier: Classifier, space: ClassifierWorkspace, shape: Shape,
) -> int:  # fmt: skip
    """Keep the likeliest sentence of each bag, with all its columns, in the bags' order; returns their number.

    Of equally likely ones the first is kept.
    """
    count = len(bags) - 1
    if count == len(labels):
        return count
    enter(best, len(labels), seed, 0.0, space, shape)  # no dropout, whatever the seed
    find_likelihoods(labels, classifier, space, shape)
    for bag in range(count):
        chosen = bags[bag]
        for sentence in range(chosen + 1, bags[bag + 1]):
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
