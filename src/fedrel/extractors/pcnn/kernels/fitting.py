"""Which sentences each step of training takes, and how much room the largest step needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Batch, Fitted
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.pcnn.kernels import memory as layout
from fedrel.extractors.pcnn.kernels.classify import Classifier, desk
from fedrel.extractors.pcnn.kernels.epoch import Plan, Room, Settings, Weights, train
from fedrel.extractors.pcnn.kernels.memory import Shape, Sizes, Text, kept, room
from fedrel.extractors.pcnn.kernels.simd import BLOCK, ROWS, Ints
from fedrel.extractors.pcnn.kernels.winners import sentence_of, winners_of
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.tensors.compiling import kernel

if TYPE_CHECKING:
    from fedrel.extractors.pcnn.network import PCNN


def plan(
    batch: Batch, orders: Sequence[Ints], batch_size: int, vocabulary: int, relations: int, *, one: bool
) -> tuple[Plan, Sizes]:
    """The sentences of every step: those of `batch_size` bags, in each epoch's order of all bags.

    `one`: of each bag, one sentence is to be trained on.
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
    """A plan's order, steps and labels. Kernels do not look where they read: what they will read is checked."""
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
    pcnn: PCNN,
    batch: Batch,
    orders: Sequence[Ints],
    batch_size: int,
    lr: float,
    weight_decay: float,
    seed: int,
    head: str,
) -> Fitted:
    """`PCNN.fit`."""
    shape, weights = layout.shape_of(pcnn), _weights(pcnn)
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, sizes = plan(batch, orders, batch_size, vocabulary, relations, one=head == "one")
    fitted = Fitted(np.empty(len(steps.steps) - 1), np.zeros(len(batch.head), np.int64))
    if not len(fitted.losses):
        return fitted
    space = kept(
        (shape, vocabulary, relations), sizes, lambda most: _room(shape, vocabulary, relations, most)
    )
    seeds = step_seeds(torch.Generator().manual_seed(seed), len(fitted.losses)).numpy()
    settings = Settings(float(lr), float(weight_decay), float(pcnn.dropout), seeds)
    scale = train(steps, weights, float(pcnn.words.scale), settings, space, *fitted, shape)
    if isinstance(pcnn.words, RowEmbedding):
        pcnn.words.scale = scale
    torch.autograd.graph.increment_version(list(pcnn._weights.values()))
    return fitted


def _weights(pcnn: PCNN) -> Weights:
    """The weights' own memory."""
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


def _room(shape: Shape, vocabulary: int, relations: int, most: Sizes) -> Room:
    sentences, tokens = most.sentences, most.tokens
    words = min(tokens, vocabulary)
    inputs = (tokens + shape.window // 2 * (sentences + 1), shape.pitch)
    return Room(
        filters=room("filters", (shape.filters, shape.window * shape.pitch)),
        classifier=room("classifier", (relations + ROWS, layout.whole(3 * shape.filters))),
        text=Text(
            rows=room("text.rows", (tokens,), np.int64),
            starts=room("text.starts", (sentences + 1,), np.int64),
            head=room("text.head", (sentences,), np.int64),
            tail=room("text.tail", (sentences,), np.int64),
        ),
        numbers=room("numbers", (sentences,), np.int64),
        labels=room("labels", (sentences,), np.int64),
        slot=room("slot", (vocabulary,), np.int32, fill=-1),
        used=room("used", (words,), np.int64),
        vectors=room("vectors", (words + ROWS, shape.pitch)),
        panels=layout.panels(shape),
        lines=layout.lines(shape, BLOCK, sentences, words),
        places=layout.places(shape, sentences, tokens),
        best=room("best", (sentences, 3, shape.slots)),
        where=room("where", (sentences, 3, shape.slots)),
        desk=desk(shape, relations, sentences),
        inputs=room("inputs", inputs),
        moves=room("moves", inputs),
        winners=winners_of(shape, sentences),
        sentence=sentence_of(shape, most.longest),
    )


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's own memory."""
    return tensor.detach().numpy()
