"""`PCNN.fit` and `PCNN.fit_several`: the arrays that the kernel needs, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.objective import Correction, Course, Objective
from fedrel.extractors.optimisers import constants
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
from fedrel.extractors.pcnn.kernels.several_sites import Dense, most_changed_rows, plan, train_several
from fedrel.extractors.pcnn.kernels.training import Forces, Gathered, Weights, Workspace
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.compiling import read_only
from fedrel.tensors.simd import BLOCK, ROWS, Floats, Ints
from fedrel.tensors.weights import Rows

WORDS = "words.weight"  # what messages and corrections call the words' table, and all other weights:
DENSE = (
    "head_positions",
    "tail_positions",
    "filters",
    "filters_bias",
    "classifier.weight",
    "classifier.bias",
)
_NOTHING = np.empty(0, np.float32)


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
    shape, weights, head = shape_of(pcnn), weights_of(pcnn), HEADS[objective.head]
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, parts, sizes = plan(
        batch, [orders], batch_size, vocabulary, relations, [seed], by_bags=head != NONE
    )
    losses, shares = np.empty(len(steps.seeds)), np.zeros(len(batch.head))
    pull, course, courses = objective.correction.pull, Course(), np.empty((len(losses), 2))
    for before in courses:
        before[:] = course.rest, course.drift
        course.step(lr, weight_decay, pull)
    fitted = Fitted(losses, shares, -course.drift)
    if not len(losses):
        return fitted
    start, scales = _dense(weights), np.array([pcnn.words.scale], np.float64)
    train_several(
        steps, parts, weights, start, read_only(weights.words),
        goal_of(objective, shape, relations),
        Step(float(lr), 1 - lr * (weight_decay + pull), float(pcnn.dropout)),
        forces_of(pcnn, objective.correction, lr, courses),
        workspace(shape, vocabulary, relations, head, objective.fixed is not None, sizes),
        losses, shares, _places(start, 0), scales, np.zeros(2, np.int64), *_rows(0, shape), shape,
    )  # fmt: skip
    if isinstance(pcnn.words, RowEmbedding):
        pcnn.words.move_to(float(scales[0]), course)
    return fitted


def fit_several(
    pcnn: Network,
    start: Mapping[str, Floats],
    batch: Batch,
    several: Sequence[Sequence[Ints]],
    batch_size: int,
    lr: float,
    weight_decay: float,
    seeds: Sequence[int],
    objective: Objective,
) -> list[tuple[Fitted, dict[str, Floats | Rows]]]:
    """`PCNN.fit_several`; `start` are the weights that the model was set to."""
    assert objective.is_plain, "sites with terms of their own are trained one by one"
    shape, weights, head = shape_of(pcnn), weights_of(pcnn), HEADS[objective.head]
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, parts, sizes = plan(batch, several, batch_size, vocabulary, relations, seeds, by_bags=head != NONE)
    losses, shares = np.empty(len(steps.seeds)), np.zeros(len(batch.head))
    begin = Dense(*(read_only(start.get(name, _NOTHING)) for name in DENSE))
    end, scales, bounds = (
        _places(begin, len(several)),
        np.ones(len(several)),
        np.zeros(len(several) + 1, np.int64),
    )
    step = Step(float(lr), 1 - lr * weight_decay, float(pcnn.dropout))
    index, values = _rows(most_changed_rows(steps, parts, vocabulary, step), shape)
    train_several(
        steps, parts, weights, begin, read_only(start.get(WORDS, weights.words)),
        goal_of(objective, shape, relations),
        step,
        forces_of(pcnn, objective.correction, lr, np.empty((0, 2))),
        workspace(shape, vocabulary, relations, head, False, sizes),
        losses, shares, end, scales, bounds, index, values, shape,
    )  # fmt: skip
    found = []
    for site in range(len(several)):
        own, told, rows = (
            slice(*part[site : site + 2].tolist()) for part in (parts.steps, parts.sentences, bounds)
        )
        tensors: dict[str, Floats | Rows] = {
            name: array[site] for name, array in zip(DENSE, end, strict=True) if name in start
        }
        if WORDS in start:
            tensors[WORDS] = Rows(index[rows], values[rows], float(scales[site]))
        found.append(
            (Fitted(losses[own], shares[told], _path(own.stop - own.start, lr, weight_decay)), tensors)
        )
    return found


@cache
def _path(steps: int, lr: float, weight_decay: float) -> float:
    """How far so many steps move a weight under a constant gradient of 1."""
    course = Course()
    for _ in range(steps):
        course.step(lr, weight_decay, 0.0)
    return -course.drift


def _dense(weights: Weights) -> Dense:
    classifier = weights.classifier
    dense = (weights.head, weights.tail, weights.filters, weights.bias, classifier.weight, classifier.bias)
    return Dense(*map(read_only, dense))


def _places(dense: Dense, sites: int) -> Dense:
    """Arrays for the weights of so many sites."""
    return Dense(*(np.empty((sites, *array.shape), np.float32) for array in dense))


def _rows(most: int, shape: Shape) -> tuple[npt.NDArray[np.int32], Floats]:
    """Arrays for so many rows of words and their numbers; what is never written takes no memory."""
    return np.empty(most, np.int32), np.empty((most, shape.word), np.float32)


def weights_of(pcnn: Network) -> Weights:
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


def workspace(
    shape: Shape, vocabulary: int, relations: int, head: int, fixed: bool, sizes: Sizes
) -> Workspace:
    """Arrays for steps of at least these sizes, kept from call to call."""
    key = shape, vocabulary, relations, head, fixed
    return cached_workspace(
        key, sizes, lambda most: _workspace_for(shape, vocabulary, relations, head, fixed, most)
    )


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
