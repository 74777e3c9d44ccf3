"""`PCNN.fit`: which sentences each step of training takes, and the arrays that the kernel needs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Fitted
from fedrel.extractors.batches import Batch
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.pcnn.kernels.classify import Classifier, classifier_workspace_for
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
from fedrel.extractors.pcnn.kernels.simd import BLOCK, ROWS, Ints
from fedrel.extractors.pcnn.kernels.training import Plan, Settings, Weights, Workspace, train
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.compiling import kernel


def plan(
    batch: Batch, orders: Sequence[Ints], batch_size: int, vocabulary: int, relations: int, *, one: bool
) -> tuple[Plan, Sizes]:
    """The sentences of every step, `batch_size` bags in each epoch's order, and the sizes of the largest step.

    `one`: only one sentence of each bag is to be trained on.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    of_bags = np.array(orders, np.int64).reshape(len(orders), len(labels))
    order, steps, of_sentences, sizes = _lay_out(
        of_bags, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    bounds = np.concatenate([[0], np.cumsum(np.diff(bags)[of_bags.ravel()])]) if one else order[:0]
    return Plan(words, starts, head, tail, of_sentences, order, steps, bounds), Sizes(*sizes)


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
    head: str,
) -> Fitted:
    """`PCNN.fit`."""
    shape, weights = shape_of(pcnn), _weights(pcnn)
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, sizes = plan(batch, orders, batch_size, vocabulary, relations, one=head == "one")
    fitted = Fitted(np.empty(len(steps.steps) - 1), np.zeros(len(batch.head), np.int64))
    if not len(fitted.losses):
        return fitted
    space = cached_workspace(
        (shape, vocabulary, relations), sizes, lambda most: _workspace_for(shape, vocabulary, relations, most)
    )
    seeds = step_seeds(torch.Generator().manual_seed(seed), len(fitted.losses)).numpy()
    settings = Settings(float(lr), float(weight_decay), float(pcnn.dropout), seeds)
    scale = train(steps, weights, float(pcnn.words.scale), settings, space, *fitted, shape)
    if isinstance(pcnn.words, RowEmbedding):
        pcnn.words.scale = scale
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


def _workspace_for(shape: Shape, vocabulary: int, relations: int, most: Sizes) -> Workspace:
    sentences, tokens = most.sentences, most.tokens
    words = min(tokens, vocabulary)
    inputs = (tokens + shape.window // 2 * (sentences + 1), shape.pitch)
    return Workspace(
        filters=scratch("filters", (shape.filters, shape.window * shape.pitch)),
        classifier=scratch("classifier", (relations + ROWS, rounded_up(3 * shape.filters))),
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
        panels=panels_for(shape),
        lines=lines_for(shape, BLOCK, sentences, words),
        places=places_for(shape, sentences, tokens),
        best=scratch("best", (sentences, 3, shape.slots)),
        where=scratch("where", (sentences, 3, shape.slots)),
        classifying=classifier_workspace_for(shape, relations, sentences),
        inputs=scratch("inputs", inputs),
        moves=scratch("moves", inputs),
        winners=winners_for(shape, sentences),
        sentence=sentence_for(shape, most.longest),
    )


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor as an array: a view of it."""
    return tensor.detach().numpy()
