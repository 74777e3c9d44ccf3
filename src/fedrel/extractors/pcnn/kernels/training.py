"""Training on plain cross-entropy without autograd: all steps of SGD in one kernel.

It does what `HEADS["none"]` or `HEADS["one"]`, `RowEmbedding` and `SGD` do together. The numbers of a batch stay in
the processor's cache from its first product to its last update.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.classify import (
    Classifier,
    ClassifierWorkspace,
    choose,
    classify,
    descend,
    enter,
    go_back,
)
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
from fedrel.extractors.pcnn.kernels.simd import Floats, Ints
from fedrel.tensors.compiling import inner, kernel

_SMALLEST_SCALE = 1e-6  # at a smaller scale, the stored rows of words would become too large for float32


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

    With bags, on the likeliest sentence of each: bag b is order[bags[b]:bags[b + 1]].
    """

    words: Ints  # [T]
    starts: Ints  # [S + 1]
    head: Ints  # [S]
    tail: Ints  # [S]
    labels: Ints  # [S]
    order: Ints
    steps: Ints
    bags: Ints  # [bags of all steps + 1], or [0]


class Settings(NamedTuple):
    """How to train."""

    rate: float
    weight_decay: float
    dropout: float
    seeds: Ints  # [steps] of each step's dropout


class Workspace(NamedTuple):
    """Arrays to work in, for the largest step at least."""

    filters: Floats  # [filters, window * pitch]
    classifier: Floats  # [relations and a tile's rows, units]
    text: Text
    numbers: Ints  # [n] the sentences' numbers in the plan
    labels: Ints  # [n]
    slot: npt.NDArray[np.int32]  # [vocabulary] a word's number in this step; -1 between steps
    used: Ints  # [distinct words] the words by number
    vectors: Floats  # [distinct words and a tile's rows, pitch]
    panels: Panels
    lines: Lines
    places: Places
    best: Floats  # [n, 3, slots]
    where: Floats  # [n, 3, slots]
    classifying: ClassifierWorkspace
    inputs: Floats  # [T + half * (n + 1), pitch]
    moves: Floats  # likewise: by how much they change
    winners: Winners
    sentence: Sentence


@kernel
def train(
    plan: Plan, weights: Weights, scale: float, settings: Settings, space: Workspace,
    losses: npt.NDArray[np.float64], times: Ints, shape: Shape,
) -> float:  # fmt: skip
    """Take all steps; returns the new scale of the words' rows.

    `losses` gets the loss of each step, and each sentence's `times` grows by how often it is trained on.
    """
    decay, given, bag = 1 - settings.rate * settings.weight_decay, weights, 0
    weights = _with_padded_rows(given, space, shape)
    for step in range(len(losses)):
        text, labels, words = _gather_sentences(plan, step, weights.words, scale, space, shape)
        pack(weights.filters, shape.pitch, weights.bias, space.lines.numbers.shape[1], space.panels, shape)
        stretch(weights.head, space.places.head, shape)
        stretch(weights.tail, space.places.tail, shape)
        convolve_and_pool(
            text,
            space.vectors,
            words,
            space.panels,
            space.lines,
            space.places,
            space.best,
            space.where,
            shape,
        )
        if len(plan.bags):
            first = bag
            while plan.bags[bag] < plan.steps[step + 1]:
                bag += 1
            count = choose(
                plan.bags[first : bag + 1], text, space.numbers, labels, space.best, space.where,
                weights.classifier, space.classifying, shape,
            )  # fmt: skip
            text, labels = Text(text.rows, text.starts, text.head[:count], text.tail[:count]), labels[:count]
        for number in range(len(labels)):
            times[space.numbers[number]] += 1
        enter(space.best, len(labels), settings.seeds[step], settings.dropout, space.classifying, shape)
        losses[step] = classify(labels, weights.classifier, space.classifying, shape)

        go_back(len(labels), weights.classifier, settings.dropout, space.classifying)
        descend(len(labels), weights.classifier, settings.rate, decay, space.classifying)
        lay_out_inputs(text, space.vectors, space.places, space.inputs, shape)
        follow(
            text, space.where, space.classifying.gradient, -settings.rate, weights.filters, space.winners,
            space.sentence, space.moves, shape,
        )  # fmt: skip
        _update_filters(weights, decay, space, shape)
        scale = _update_inputs(text, weights, decay, scale, space, shape)
    _copy_back(weights, given, shape)
    return scale


@inner
def _with_padded_rows(weights: Weights, space: Workspace, shape: Shape) -> Weights:
    """The weights with filters and classifier in longer rows, so that no loop has a remainder."""
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.pitch):
                value = weights.filters[filter_, offset * shape.width + k] if k < shape.width else 0
                space.filters[filter_, offset * shape.pitch + k] = value
    narrow, units = weights.classifier, 3 * shape.filters
    for relation in range(narrow.relations):
        for unit in range(space.classifier.shape[1]):
            space.classifier[relation, unit] = narrow.weight[relation, unit] if unit < units else 0
    classifier = Classifier(space.classifier, narrow.bias, narrow.relations)
    return Weights(
        weights.words, weights.touched, weights.head, weights.tail, space.filters, weights.bias, classifier
    )


@inner
def _copy_back(weights: Weights, given: Weights, shape: Shape) -> None:
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
def _gather_sentences(
    plan: Plan, step: int, table: Floats, scale: float, space: Workspace, shape: Shape
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
def _update_filters(weights: Weights, decay: float, space: Workspace, shape: Shape) -> None:
    for filter_ in range(shape.filters):
        for k in range(weights.filters.shape[1]):
            weights.filters[filter_, k] *= np.float32(decay)
        bias = add_filter_gradient(filter_, space.winners, space.inputs, weights.filters, shape)
        weights.bias[filter_] = weights.bias[filter_] * decay + bias


@inner
def _update_inputs(
    text: Text, weights: Weights, decay: float, scale: float, space: Workspace, shape: Shape
) -> float:
    """Update the vectors of distances and words; the words' decay is in their scale, which is returned."""
    train_words = len(weights.touched) > 0
    if train_words:
        scale *= decay
        if abs(scale) < _SMALLEST_SCALE:
            _fold(weights, scale)
            scale = 1.0
    for row in range(len(weights.head)):
        for k in range(shape.position):
            weights.head[row, k] *= np.float32(decay)
            weights.tail[row, k] *= np.float32(decay)
    reach, at, stretched = shape.reach, shape.window // 2, np.float32(1 / scale)
    for sentence in range(len(text.head)):
        for token in range(text.starts[sentence + 1] - text.starts[sentence]):
            word = space.used[text.rows[text.starts[sentence] + token]]
            to_head = min(max(token - text.head[sentence], -reach), reach) + reach
            to_tail = min(max(token - text.tail[sentence], -reach), reach) + reach
            if train_words:
                weights.touched[word] = True
                for k in range(shape.word):
                    weights.words[word, k] += space.moves[at, k] * stretched
            for k in range(shape.position):
                weights.head[to_head, k] += space.moves[at, shape.word + k]
                weights.tail[to_tail, k] += space.moves[at, shape.word + shape.position + k]
            at += 1
        at += shape.window // 2
    if train_words:
        for k in range(shape.word):
            weights.words[0, k] = 0  # the gap between sentences, which is never trained
    return scale


@inner
def _fold(weights: Weights, scale: float) -> None:
    """Apply the scale to every stored row, which touches them all: a pass over the table, but a rare one."""
    for word in range(len(weights.words)):
        weights.touched[word] = True
        for k in range(weights.words.shape[1]):
            weights.words[word, k] *= np.float32(scale)
