"""Training without autograd: all steps of SGD on an `Objective` in one kernel.

It does what a bag head, `RowEmbedding` and `SGD` do together. The numbers of a batch stay in the processor's cache
from its first product to its last update.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.bag_heads import ONE, BagWorkspace, choose, learn, mixes
from fedrel.extractors.pcnn.kernels.classify import Classifier, ClassifierWorkspace, Goal, Step
from fedrel.extractors.pcnn.kernels.convolution import (
    Sentence,
    Winners,
    add_filter_gradient,
    convolve_and_pool,
    follow,
    lay_out_inputs,
    pack,
    stretch,
)
from fedrel.extractors.pcnn.kernels.memory import Lines, Panels, Places, Shape, Text
from fedrel.extractors.row_tables import GAP
from fedrel.tensors.compiling import inner
from fedrel.tensors.simd import Floats, Ints

SMALLEST_SCALE = 1e-6  # at a smaller scale, the stored rows of words would become too large for float32


class Weights(NamedTuple):
    """The weights that are trained."""

    words: Floats  # [vocabulary, word] stored rows: a true row is `scale` times as large
    touched: npt.NDArray[np.bool_]  # [vocabulary] rows that training has changed; [0]: words are not trained
    head: Floats  # [2 * reach + 1, position]
    tail: Floats
    filters: Floats  # [filters, window * width]; within `train`, [filters, window * pitch]
    bias: Floats  # [filters]
    classifier: Classifier


class Plan(NamedTuple):
    """What to train on: in step i, the sentences order[steps[i]:steps[i + 1]].

    For a head that reads bags, bag b is order[bags[b]:bags[b + 1]].
    """

    words: Ints  # [T]
    starts: Ints  # [S + 1]
    head: Ints  # [S]
    tail: Ints  # [S]
    labels: Ints  # [S]
    order: Ints
    steps: Ints
    bags: Ints  # [bags of all steps + 1], or [0]
    seeds: Ints  # [steps] of each step's dropout


class Forces(NamedTuple):
    """A `Correction`: what every step adds to the weights. Without one, no array has any rows.

    With rest and drift as they are before a step, a row of words is `scale` times the stored one, plus rest - scale
    times that of `base`, plus drift times its forces (`RowEmbedding`).
    """

    head: Floats  # [2 * reach + 1, position]
    tail: Floats
    filters: Floats  # [filters, window * pitch]
    bias: Floats  # [filters]
    classifier: Floats  # [relations, units]
    classifier_bias: Floats  # [relations]
    base: Floats  # [vocabulary, word] the rows that training started from; read only
    common: Floats  # [vocabulary, word], or [0, word]: a force on all rows; read only
    own_words: npt.NDArray[np.int32]  # the words that have a force of their own, ascending; read only
    own: Floats  # [own words, word] those forces; read only
    courses: npt.NDArray[np.float64]  # [steps, 2] rest and drift


class Gathered(NamedTuple):
    """The sentences of a step, and the words in them."""

    text: Text
    numbers: Ints  # [n] the sentences' numbers in the plan
    labels: Ints  # [n]
    slot: npt.NDArray[np.int32]  # [vocabulary] a word's number in this step; -1 between steps
    used: Ints  # [distinct words] the words by number
    vectors: Floats  # [distinct words and a tile's rows, pitch]


class Workspace(NamedTuple):
    """Arrays to work in, for the largest step at least."""

    filters: Floats  # [filters, window * pitch]
    classifier: Floats  # [relations and a tile's rows, units]
    gathered: Gathered
    panels: Panels
    lines: Lines
    places: Places
    best: Floats  # [n, 3, slots]
    where: Floats  # [n, 3, slots]
    classifying: ClassifierWorkspace
    bags: BagWorkspace
    bounds: Ints  # [n + 1] where the bags of a step begin among its sentences
    inputs: Floats  # [T + half * (n + 1), pitch]
    moves: Floats  # likewise: by how much they change
    winners: Winners
    sentence: Sentence


@inner
def train(
    plan: Plan, weights: Weights, scale: float, goal: Goal, sgd: Step, forces: Forces, space: Workspace,
    losses: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], shape: Shape,
) -> float:  # fmt: skip
    """Take all steps; returns the new scale of the words' rows.

    `losses` gets the loss of each step, and each sentence's share grows by how much it is trained on.
    """
    given, bag = weights, 0
    weights = with_padded_rows(given, space.filters, space.classifier, shape)
    for step in range(len(losses)):
        text, labels, words = gather_sentences(plan, step, weights.words, scale, space.gathered, shape)
        if len(forces.base):
            add_forces(step, words, scale, forces, space.gathered, shape)
        pack(weights.filters, shape.pitch, weights.bias, space.lines.numbers.shape[1], space.panels, shape)
        stretch(weights.head, space.places.head, shape)
        stretch(weights.tail, space.places.tail, shape)
        convolve_and_pool(
            text,
            space.gathered.vectors,
            words,
            space.panels,
            space.lines,
            space.places,
            space.best,
            space.where,
            shape,
        )
        first = bag
        while bag + 1 < len(plan.bags) and plan.bags[bag] < plan.steps[step + 1]:
            bag += 1
        bags = space.bounds[: bag - first + 1]
        for number in range(len(bags)):
            bags[number] = plan.bags[first + number] - plan.bags[first] if len(plan.bags) else 0
        if goal.head == ONE:
            count = choose(
                plan.seeds[step], bags, text, space.gathered.numbers, labels, space.best, space.where,
                weights.classifier, space.classifying, shape,
            )  # fmt: skip
            text, labels = Text(text.rows, text.starts, text.head[:count], text.tail[:count]), labels[:count]
        losses[step] = learn(
            plan.seeds[step], bags, labels, space.best, weights.classifier, goal, sgd, space.bags,
            space.classifying, shape,
        )  # fmt: skip
        mixing = mixes(goal.head, bags, len(labels))
        for number in range(len(labels)):
            share = space.bags.attention[number] if mixing else np.float32(1)
            shares[space.gathered.numbers[number]] += share
        for relation in range(len(forces.classifier)):
            for unit in range(forces.classifier.shape[1]):
                weights.classifier.weight[relation, unit] += forces.classifier[relation, unit]
        for relation in range(len(forces.classifier_bias)):
            weights.classifier.bias[relation] += forces.classifier_bias[relation]
        lay_out_inputs(text, space.gathered.vectors, space.places, space.inputs, shape)
        follow(
            text, space.where, space.classifying.gradient, -sgd.rate, weights.filters, space.winners,
            space.sentence, space.moves, shape,
        )  # fmt: skip
        update_filters(weights, sgd.kept, forces, space.winners, space.inputs, shape)
        scale = update_inputs(text, weights, sgd.kept, scale, forces, space.gathered.used, space.moves, shape)
    copy_back(weights, given, shape)
    return scale


@inner
def with_padded_rows(weights: Weights, filters: Floats, longer: Floats, shape: Shape) -> Weights:
    """The weights with filters and classifier in longer rows, so that no loop has a remainder."""
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.pitch):
                value = weights.filters[filter_, offset * shape.width + k] if k < shape.width else 0
                filters[filter_, offset * shape.pitch + k] = value
    narrow, units = weights.classifier, 3 * shape.filters
    for relation in range(narrow.relations):
        for unit in range(longer.shape[1]):
            longer[relation, unit] = narrow.weight[relation, unit] if unit < units else 0
    classifier = Classifier(longer, narrow.bias, narrow.relations)
    return Weights(
        weights.words, weights.touched, weights.head, weights.tail, filters, weights.bias, classifier
    )


@inner
def copy_back(weights: Weights, given: Weights, shape: Shape) -> None:
    """Copy filters and classifier back to the model's own arrays."""
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.width):
                value = weights.filters[filter_, offset * shape.pitch + k]
                given.filters[filter_, offset * shape.width + k] = value
    for relation in range(given.classifier.relations):
        for unit in range(3 * shape.filters):
            given.classifier.weight[relation, unit] = weights.classifier.weight[relation, unit]


@inner
def gather_sentences(
    plan: Plan, step: int, table: Floats, scale: float, space: Gathered, shape: Shape
) -> tuple[Text, Ints, int]:
    """Copy a step's sentences and labels; number the words in them, and fetch their vectors."""
    first, count, at, words = plan.steps[step], plan.steps[step + 1] - plan.steps[step], 0, 0
    text = Text(space.text.rows, space.text.starts, space.text.head[:count], space.text.tail[:count])
    labels = space.labels[:count]
    text.starts[0] = 0
    for number in range(count):
        sentence = plan.order[first + number]
        for token in range(plan.starts[sentence], plan.starts[sentence + 1]):
            word = plan.words[token]
            if space.slot[word] < 0:
                space.slot[word] = words
                space.used[words] = word
                words += 1
            text.rows[at] = space.slot[word]
            at += 1
        text.starts[number + 1] = at
        text.head[number], text.tail[number] = plan.head[sentence], plan.tail[sentence]
        space.numbers[number], labels[number] = sentence, plan.labels[sentence]
    for row in range(words):
        word = space.used[row]
        space.slot[word] = -1
        for k in range(shape.word):
            space.vectors[row, k] = table[word, k] * np.float32(scale)
        for k in range(shape.word, shape.pitch):
            space.vectors[row, k] = 0
    return text, labels, words


@inner
def add_forces(step: int, words: int, scale: float, forces: Forces, space: Gathered, shape: Shape) -> None:
    """Add to the vectors of a step's words what the correction has done to their rows so far."""
    pulled, drift = np.float32(forces.courses[step, 0] - scale), np.float32(forces.courses[step, 1])
    for row in range(words):
        word = space.used[row]
        if word == GAP:
            continue
        for k in range(shape.word):
            space.vectors[row, k] += forces.base[word, k] * pulled
        if len(forces.common):
            for k in range(shape.word):
                space.vectors[row, k] += forces.common[word, k] * drift
        place = _place_of(word, forces.own_words)
        if place >= 0:
            for k in range(shape.word):
                space.vectors[row, k] += forces.own[place, k] * drift


@inner
def _place_of(word: int, words: npt.NDArray[np.int32]) -> int:
    """A word's place among words in ascending order, or -1."""
    first, last = 0, len(words)
    while first < last:
        middle = (first + last) // 2
        if words[middle] < word:
            first = middle + 1
        else:
            last = middle
    return first if first < len(words) and words[first] == word else -1


@inner
def update_filters(
    weights: Weights, kept: float, forces: Forces, winners: Winners, inputs: Floats, shape: Shape
) -> None:
    """Update the filters and their biases."""
    for filter_ in range(shape.filters):
        for k in range(weights.filters.shape[1]):
            weights.filters[filter_, k] *= np.float32(kept)
        if len(forces.filters):
            for k in range(weights.filters.shape[1]):
                weights.filters[filter_, k] += forces.filters[filter_, k]
        bias = add_filter_gradient(filter_, winners, inputs, weights.filters, shape)
        weights.bias[filter_] = weights.bias[filter_] * kept + bias
    for filter_ in range(len(forces.bias)):
        weights.bias[filter_] += forces.bias[filter_]


@inner
def update_inputs(
    text: Text, weights: Weights, kept: float, scale: float, forces: Forces, used: Ints, moves: Floats,
    shape: Shape,
) -> float:  # fmt: skip
    """Update the vectors of distances and words; what decay does to words is in their scale, which is returned."""
    train_words = len(weights.touched) > 0
    if train_words:
        scale *= kept
        if abs(scale) < SMALLEST_SCALE:
            _fold(weights, scale, forces)
            scale = 1.0
    _update_distances(weights, kept, forces, shape)
    reach, at, stretched = shape.reach, shape.window // 2, np.float32(1 / scale)
    for sentence in range(len(text.head)):
        for token in range(text.starts[sentence + 1] - text.starts[sentence]):
            word = used[text.rows[text.starts[sentence] + token]]
            to_head = min(max(token - text.head[sentence], -reach), reach) + reach
            to_tail = min(max(token - text.tail[sentence], -reach), reach) + reach
            if train_words:
                weights.touched[word] = True
                for k in range(shape.word):
                    weights.words[word, k] += moves[at, k] * stretched
            for k in range(shape.position):
                weights.head[to_head, k] += moves[at, shape.word + k]
                weights.tail[to_tail, k] += moves[at, shape.word + shape.position + k]
            at += 1
        at += shape.window // 2
    if train_words:
        for k in range(shape.word):
            weights.words[GAP, k] = 0
    return scale


@inner
def _update_distances(weights: Weights, kept: float, forces: Forces, shape: Shape) -> None:
    """What a step does to the vectors of all distances, whether or not they have a gradient."""
    for row in range(len(weights.head)):
        for k in range(shape.position):
            weights.head[row, k] *= np.float32(kept)
            weights.tail[row, k] *= np.float32(kept)
    for row in range(len(forces.head)):
        for k in range(shape.position):
            weights.head[row, k] += forces.head[row, k]
            weights.tail[row, k] += forces.tail[row, k]


@inner
def _fold(weights: Weights, scale: float, forces: Forces) -> None:
    """Apply the scale to the stored rows: a pass over the table, but a rare one.

    With forces, only to what training added to its rows. Without, to every row, which touches them all.
    """
    for word in range(len(weights.words)):
        if len(forces.base) == 0:
            weights.touched[word] = True
            for k in range(weights.words.shape[1]):
                weights.words[word, k] *= np.float32(scale)
        elif weights.touched[word]:
            for k in range(weights.words.shape[1]):
                base = forces.base[word, k]
                weights.words[word, k] = base + (weights.words[word, k] - base) * np.float32(scale)
