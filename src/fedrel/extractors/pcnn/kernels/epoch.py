"""Training on plain cross-entropy without a graph: step after step of SGD in one kernel.

It does what `HEADS["none"]` or `HEADS["one"]`, `RowEmbedding` and `SGD` do together. All that a batch needs stays
in the cache from its first product to its last update.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrel.extractors.pcnn.kernels.classify import (
    Classifier,
    Desk,
    choose,
    classify,
    descend,
    enter,
    go_back,
)
from fedrel.extractors.pcnn.kernels.convolution import convolve_and_pool, pack, stretch
from fedrel.extractors.pcnn.kernels.memory import Lines, Panels, Places, Shape, Text
from fedrel.extractors.pcnn.kernels.simd import Floats, Ints
from fedrel.extractors.pcnn.kernels.winners import (
    Sentence,
    Winners,
    add_filter_gradient,
    follow,
    lay_out_inputs,
)
from fedrel.tensors.compiling import inner, kernel

_SMALLEST_SCALE = 1e-6  # below it the stored rows of words would drift towards the end of float32


class Weights(NamedTuple):
    """All that is trained."""

    words: Floats  # [vocabulary, word] stored rows: a true row is `scale` times as large
    touched: npt.NDArray[np.bool_]  # [vocabulary] rows that training has changed; [0]: none may
    head: Floats  # [2 * reach + 1, position]
    tail: Floats
    filters: Floats  # [filters, window * width]; while the kernel works, [filters, window * pitch]
    bias: Floats  # [filters]
    classifier: Classifier


class Plan(NamedTuple):
    """What to train on: step i on sentences order[steps[i]:steps[i + 1]] of all there are.

    If there are bags, on the likeliest sentence of each: bag b is order[bags[b]:bags[b + 1]].
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
    seeds: Ints  # [steps] what each step's dropout is drawn from


class Room(NamedTuple):
    """Room to work in, for the largest step at least."""

    filters: Floats  # [filters, window * pitch]
    classifier: Floats  # [relations and a tile's rows, units]
    text: Text
    numbers: Ints  # [n] which sentences these are of all
    labels: Ints  # [n]
    slot: npt.NDArray[np.int32]  # [vocabulary] a word's number in this step; -1 between steps
    used: Ints  # [distinct words] the words by number
    vectors: Floats  # [distinct words and a tile's rows, pitch]
    panels: Panels
    lines: Lines
    places: Places
    best: Floats  # [n, 3, slots]
    where: Floats  # [n, 3, slots]
    desk: Desk
    inputs: Floats  # [T + half * (n + 1), pitch]
    moves: Floats  # likewise: by how much they change
    winners: Winners
    sentence: Sentence


@kernel
def train(
    plan: Plan, weights: Weights, scale: float, settings: Settings, room: Room,
    losses: npt.NDArray[np.float64], times: Ints, shape: Shape,
) -> float:  # fmt: skip
    """Take all steps: the new scale of the words' rows.

    The losses are filled, and to each sentence's `times` is added how often it is trained on.
    """
    decay, given, bag = 1 - settings.rate * settings.weight_decay, weights, 0
    weights = _spread(given, room, shape)
    for step in range(len(losses)):
        text, labels, words = _gather(plan, step, weights.words, scale, room, shape)
        pack(weights.filters, shape.pitch, weights.bias, room.lines.numbers.shape[1], room.panels, shape)
        stretch(weights.head, room.places.head, shape)
        stretch(weights.tail, room.places.tail, shape)
        convolve_and_pool(
            text, room.vectors, words, room.panels, room.lines, room.places, room.best, room.where, shape
        )
        if len(plan.bags):
            first = bag
            while plan.bags[bag] < plan.steps[step + 1]:
                bag += 1
            count = choose(
                plan.bags[first : bag + 1], text, room.numbers, labels, room.best, room.where,
                weights.classifier, room.desk, shape,
            )  # fmt: skip
            text, labels = Text(text.rows, text.starts, text.head[:count], text.tail[:count]), labels[:count]
        for number in range(len(labels)):
            times[room.numbers[number]] += 1
        enter(room.best, len(labels), settings.seeds[step], settings.dropout, room.desk, shape)
        losses[step] = classify(labels, weights.classifier, room.desk, shape)

        go_back(len(labels), weights.classifier, settings.dropout, room.desk)
        descend(len(labels), weights.classifier, settings.rate, decay, room.desk)
        lay_out_inputs(text, room.vectors, room.places, room.inputs, shape)
        follow(
            text, room.where, room.desk.gradient, -settings.rate, weights.filters, room.winners, room.sentence,
            room.moves, shape,
        )  # fmt: skip
        _move_filters(weights, decay, room, shape)
        scale = _move_inputs(text, weights, decay, scale, room, shape)
    _gather_in(weights, given, shape)
    return scale


@inner
def _spread(weights: Weights, room: Room, shape: Shape) -> Weights:
    """The same weights with filters and classifier in rows that no loop has a remainder of."""
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.pitch):
                value = weights.filters[filter_, offset * shape.width + k] if k < shape.width else 0
                room.filters[filter_, offset * shape.pitch + k] = value
    narrow, units = weights.classifier, 3 * shape.filters
    for relation in range(narrow.relations):
        for unit in range(room.classifier.shape[1]):
            room.classifier[relation, unit] = narrow.weight[relation, unit] if unit < units else 0
    classifier = Classifier(room.classifier, narrow.bias, narrow.relations)
    return Weights(
        weights.words, weights.touched, weights.head, weights.tail, room.filters, weights.bias, classifier
    )


@inner
def _gather_in(weights: Weights, given: Weights, shape: Shape) -> None:
    """Undo `_spread`."""
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.width):
                value = weights.filters[filter_, offset * shape.pitch + k]
                given.filters[filter_, offset * shape.width + k] = value
    for relation in range(given.classifier.relations):
        for unit in range(3 * shape.filters):
            given.classifier.weight[relation, unit] = weights.classifier.weight[relation, unit]


@inner
def _gather(
    plan: Plan, step: int, table: Floats, scale: float, room: Room, shape: Shape
) -> tuple[Text, Ints, int]:
    """Lay out a step's sentences with their labels; number the words in them, and fetch their vectors."""
    first, count, at, words = plan.steps[step], plan.steps[step + 1] - plan.steps[step], 0, 0
    text = Text(room.text.rows, room.text.starts, room.text.head[:count], room.text.tail[:count])
    labels = room.labels[:count]
    text.starts[0] = 0
    for number in range(count):
        sentence = plan.order[first + number]
        for token in range(plan.starts[sentence], plan.starts[sentence + 1]):
            word = plan.words[token]
            if room.slot[word] < 0:
                room.slot[word] = words
                room.used[words] = word
                words += 1
            text.rows[at] = room.slot[word]
            at += 1
        text.starts[number + 1] = at
        text.head[number], text.tail[number] = plan.head[sentence], plan.tail[sentence]
        room.numbers[number], labels[number] = sentence, plan.labels[sentence]
    for row in range(words):
        word = room.used[row]
        room.slot[word] = -1
        for k in range(shape.word):
            room.vectors[row, k] = table[word, k] * np.float32(scale)
        for k in range(shape.word, shape.pitch):
            room.vectors[row, k] = 0
    return text, labels, words


@inner
def _move_filters(weights: Weights, decay: float, room: Room, shape: Shape) -> None:
    for filter_ in range(shape.filters):
        for k in range(weights.filters.shape[1]):
            weights.filters[filter_, k] *= np.float32(decay)
        bias = add_filter_gradient(filter_, room.winners, room.inputs, weights.filters, shape)
        weights.bias[filter_] = weights.bias[filter_] * decay + bias


@inner
def _move_inputs(text: Text, weights: Weights, decay: float, scale: float, room: Room, shape: Shape) -> float:
    """Move the vectors of distances and words; the words' decay is in their scale, which comes back."""
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
            word = room.used[text.rows[text.starts[sentence] + token]]
            to_head = min(max(token - text.head[sentence], -reach), reach) + reach
            to_tail = min(max(token - text.tail[sentence], -reach), reach) + reach
            if train_words:
                weights.touched[word] = True
                for k in range(shape.word):
                    weights.words[word, k] += room.moves[at, k] * stretched
            for k in range(shape.position):
                weights.head[to_head, k] += room.moves[at, shape.word + k]
                weights.tail[to_tail, k] += room.moves[at, shape.word + shape.position + k]
            at += 1
        at += shape.window // 2
    if train_words:
        for k in range(shape.word):
            weights.words[0, k] = 0  # the gap between sentences, which is never trained
    return scale


@inner
def _fold(weights: Weights, scale: float) -> None:
    """Apply the scale to every stored row: a full pass, so rare. All of them have then been changed."""
    for word in range(len(weights.words)):
        weights.touched[word] = True
        for k in range(weights.words.shape[1]):
            weights.words[word, k] *= np.float32(scale)
