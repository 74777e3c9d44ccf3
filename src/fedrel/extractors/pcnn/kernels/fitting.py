"""`PCNN.fit`: which sentences each step of training takes, and the arrays that the kernel needs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.correction import Correction, Course
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.objective import Objective
from fedrel.extractors.optim.sgd import constants
from fedrel.extractors.pcnn.kernels.bag_heads import HEADS, NONE, bag_workspace_for
from fedrel.extractors.pcnn.kernels.classify import Classifier, Goal, Step, classifier_workspace_for
from fedrel.extractors.pcnn.kernels.convolution import sentence_for, winners_for
from fedrel.extractors.pcnn.kernels.memory import (
    Network,
    Shape,
    Sizes,
    Text,
    cached_workspace,
    lines_for,
    panels_for,
    places_for,
    rounded_up,
    scratch,
    shape_of,
)
from fedrel.extractors.pcnn.kernels.simd import BLOCK, ROWS, Floats, Ints
from fedrel.extractors.pcnn.kernels.training import Forces, Gathered, Plan, Weights, Workspace, train
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.compiling import kernel, read_only

WORDS = "words.weight"  # what a correction calls the words' table
_NOTHING = np.empty(0, np.float32)


def plan(
    batch: Batch, orders: Sequence[Ints], batch_size: int, vocabulary: int, relations: int, seed: int,
    *, by_bags: bool,
) -> tuple[Plan, Sizes]:  # fmt: skip
    """The sentences of every step, `batch_size` bags in each epoch's order, and the sizes of the largest step.

    `by_bags`: the head reads bags, and needs to know where they begin.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    of_bags = np.array(orders, np.int64).reshape(len(orders), len(labels))
    order, steps, of_sentences, sizes = _lay_out(
        of_bags, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    bounds = np.concatenate([[0], np.cumsum(np.diff(bags)[of_bags.ravel()])]) if by_bags else order[:0]
    seeds = step_seeds(torch.Generator().manual_seed(seed), len(steps) - 1).numpy()
    return Plan(words, starts, head, tail, of_sentences, order, steps, bounds, seeds), Sizes(*sizes)


@kernel
def _lay_out(
    orders: Ints, bags: Ints, labels: Ints, starts: Ints, words: Ints, batch_size: int, vocabulary: int,
    relations: int,
) -> tuple[Ints, Ints, Ints, tuple[int, int, int]]:  # fmt: skip
    """A plan's order, steps and labels. Compiled code checks no bounds, so words and labels are checked here."""
    for word in words:
        if word < 0 or word >= vocabulary:
            raise IndexError("a word is not in the vocabulary")
    epochs, count = orders.shape
    order, at = np.empty(epochs * (len(starts) - 1), np.int64), 0
    steps, step = np.zeros(epochs * -(-count // batch_size) + 1, np.int64), 0
    most_sentences, most_tokens, longest = 0, 0, 0
    for epoch in range(epochs):
        for begin in range(0, count, batch_size):
            tokens = 0
            for bag in orders[epoch, begin : begin + batch_size]:
                for sentence in range(bags[bag], bags[bag + 1]):
                    order[at] = sentence
                    at += 1
                    length = starts[sentence + 1] - starts[sentence]
                    tokens, longest = tokens + length, max(longest, length)
            step += 1
            steps[step] = at
            most_sentences, most_tokens = max(most_sentences, at - steps[step - 1]), max(most_tokens, tokens)
    of_sentences = np.empty(len(starts) - 1, np.int64)
    for bag in range(count):
        if labels[bag] < 0 or labels[bag] >= relations:
            raise IndexError("a label is not a relation")
        of_sentences[bags[bag] : bags[bag + 1]] = labels[bag]
    return order, steps, of_sentences, (most_sentences, most_tokens, longest)


def fit(
    pcnn: Network,
    batch: Batch,
    orders: Sequence[Ints],
    batch_size: int,
    lr: float,
    weight_decay: float,
    seed: int,
    objective: Objective,
) -> Fitted:
    """`PCNN.fit`."""
    shape, weights, head = shape_of(pcnn), _weights(pcnn), HEADS[objective.head]
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, sizes = plan(batch, orders, batch_size, vocabulary, relations, seed, by_bags=head != NONE)
    losses, shares = np.empty(len(steps.seeds)), np.zeros(len(batch.head))
    pull, course, courses = objective.correction.pull, Course(), np.empty((len(losses), 2))
    for before in courses:
        before[:] = course.rest, course.drift
        course.step(lr, weight_decay, pull)
    fitted = Fitted(losses, shares, -course.drift)
    if not len(losses):
        return fitted
    fixed = objective.fixed is not None
    space = cached_workspace(
        (shape, vocabulary, relations, head, fixed),
        sizes,
        lambda most: _workspace_for(shape, vocabulary, relations, head, fixed, most),
    )
    goal, forces = goal_of(objective, shape, relations), forces_of(pcnn, objective.correction, lr, courses)
    step = Step(float(lr), 1 - lr * (weight_decay + pull), float(pcnn.dropout))
    scale = train(steps, weights, float(pcnn.words.scale), goal, step, forces, space, losses, shares, shape)
    if isinstance(pcnn.words, RowEmbedding):
        pcnn.words.move_to(scale, course)
    return fitted


def _weights(pcnn: Network) -> Weights:
    """The weights as arrays: views, which training changes in place."""
    classifier = pcnn.classifier
    bias = np.empty(0, np.float32) if classifier.bias is None else _array(classifier.bias)
    touched = _array(pcnn.words.touched) if isinstance(pcnn.words, RowEmbedding) else np.empty(0, np.bool_)
    return Weights(
        words=_array(pcnn.words.weight),
        touched=touched,
        head=_array(pcnn.head_positions),
        tail=_array(pcnn.tail_positions),
        filters=_array(pcnn.filters),
        bias=_array(pcnn.filters_bias),
        classifier=Classifier(_array(classifier.weight), bias, len(classifier.weight)),
    )


def goal_of(objective: Objective, shape: Shape, relations: int) -> Goal:
    """An objective as the kernel reads it, but for its correction."""
    units = rounded_up(3 * shape.filters)
    scale, shift = (
        _NOTHING if numbers is None else np.asarray(numbers, np.float32)
        for numbers in (objective.calibration.scale, objective.calibration.shift)
    )
    fixed, weight = _no_rows(units), 0.0
    if objective.fixed is not None:
        fixed, weight = _filled("goal.fixed", (relations + ROWS, units)), float(objective.fixed.weight)
        fixed[:relations, : 3 * shape.filters] = objective.fixed.vectors
    return Goal(HEADS[objective.head], scale, shift, fixed, weight)


def forces_of(pcnn: Network, correction: Correction, lr: float, courses: npt.NDArray[np.float64]) -> Forces:
    """A correction as the kernel reads it, with `rest` and `drift` before each step; the words are told of it."""
    shape = shape_of(pcnn)
    units, table = rounded_up(3 * shape.filters), np.empty((0, shape.word), np.float32)
    forces = Forces(
        head=_no_rows(shape.position),
        tail=_no_rows(shape.position),
        filters=_no_rows(shape.window * shape.pitch),
        bias=_NOTHING,
        classifier=_no_rows(units),
        classifier_bias=_NOTHING,
        base=read_only(table),
        common=read_only(table),
        own_words=read_only(np.empty(0, np.int32)),
        own=read_only(table),
        courses=courses,
    )
    if not correction:
        return forces
    dense = {
        "head_positions": pcnn.head_positions,
        "tail_positions": pcnn.tail_positions,
        "filters": pcnn.filters,
        "filters_bias": pcnn.filters_bias,
        **{f"classifier.{name}": weight for name, weight in pcnn.classifier.named_parameters()},
    }
    steps = {
        name: (constant * -lr).numpy()
        for name, constant in zip(dense, constants(correction, dense), strict=True)
    }
    filters = _filled("forces.filters", (shape.filters, shape.window, shape.pitch))
    filters[:, :, : shape.width] = steps["filters"].reshape(shape.filters, shape.window, shape.width)
    classifier = _filled("forces.classifier", (len(steps["classifier.weight"]), units))
    classifier[:, : 3 * shape.filters] = steps["classifier.weight"]
    forces = forces._replace(
        head=steps["head_positions"],
        tail=steps["tail_positions"],
        filters=filters.reshape(shape.filters, -1),
        bias=steps["filters_bias"],
        classifier=classifier,
        classifier_bias=steps.get("classifier.bias", _NOTHING),
    )
    words = pcnn.words
    if not isinstance(words, RowEmbedding):
        return forces
    own, common = correction.own.get(WORDS), correction.common.get(WORDS)
    assert not isinstance(own, np.ndarray), "words are a table of rows"
    words.correct(correction.pull, own, common)
    forces = forces._replace(base=read_only(words.base))
    if common is not None:
        forces = forces._replace(common=read_only(common))
    if own is not None:
        forces = forces._replace(own_words=read_only(own.index), own=read_only(own.values))
    return forces


def _workspace_for(
    shape: Shape, vocabulary: int, relations: int, head: int, fixed: bool, most: Sizes
) -> Workspace:
    sentences, tokens = most.sentences, most.tokens
    words = min(tokens, vocabulary)
    inputs = (tokens + shape.window // 2 * (sentences + 1), shape.pitch)
    return Workspace(
        filters=scratch("filters", (shape.filters, shape.window * shape.pitch)),
        classifier=scratch("classifier", (relations + ROWS, rounded_up(3 * shape.filters))),
        gathered=Gathered(
            text=Text(
                rows=scratch("text.rows", (tokens,), np.int64),
                starts=scratch("text.starts", (sentences + 1,), np.int64),
                head=scratch("text.head", (sentences,), np.int64),
                tail=scratch("text.tail", (sentences,), np.int64),
            ),
            numbers=scratch("numbers", (sentences,), np.int64),
            labels=scratch("labels", (sentences,), np.int64),
            slot=scratch("slot", (vocabulary,), np.int32, fill=-1),
            used=scratch("used", (words,), np.int64),
            vectors=scratch("vectors", (words + ROWS, shape.pitch)),
        ),
        panels=panels_for(shape),
        lines=lines_for(shape, BLOCK, sentences, words),
        places=places_for(shape, sentences, tokens),
        best=scratch("best", (sentences, 3, shape.slots)),
        where=scratch("where", (sentences, 3, shape.slots)),
        classifying=classifier_workspace_for(shape, relations, sentences),
        bags=bag_workspace_for(head, fixed, shape, relations, sentences),
        bounds=scratch("bounds", (sentences + 1,), np.int64),
        inputs=scratch("inputs", inputs),
        moves=scratch("moves", inputs),
        winners=winners_for(shape, sentences),
        sentence=sentence_for(shape, most.longest),
    )


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor as an array: a view of it."""
    return tensor.detach().numpy()


def _no_rows(columns: int) -> Floats:
    return np.empty((0, columns), np.float32)


def _filled(name: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    """A scratch array of zeros."""
    array = scratch(name, shape)
    array.fill(0)
    return array
