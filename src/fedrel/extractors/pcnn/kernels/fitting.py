"""`PCNN.fit`: which sentences each step of training takes, and the arrays that the kernel needs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Parts(NamedTuple):
    """Which part of a plan is whose, where several sites share one; [sites + 1] each."""

    steps: Ints
    bags: Ints  # of all steps
    sentences: Ints


def plan(
    batch: Batch,
    several: Sequence[Sequence[Ints]],
    batch_size: int,
    vocabulary: int,
    relations: int,
    *,
    one: bool,
) -> tuple[Plan, Parts, Sizes]:
    """The sentences of every step, `batch_size` bags in each epoch's order, and the sizes of the largest step.

    `several` has the orders of each site: the batch has the first site's bags, then the second's, and so on.
    `one`: only one sentence of each bag is to be trained on.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    counts = np.array([[len(orders), len(orders[0])] for orders in several])
    of_bags = np.concatenate([each for orders in several for each in orders])
    order, steps, of_sentences, bounds, parts, sizes = _lay_out(
        of_bags, counts, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    bounds = bounds if one else order[:0]
    return Plan(words, starts, head, tail, of_sentences, order, steps, bounds), Parts(*parts), Sizes(*sizes)


@kernel
def _lay_out(
    orders: Ints, counts: Ints, bags: Ints, labels: Ints, starts: Ints, words: Ints, batch_size: int,
    vocabulary: int, relations: int,
) -> tuple[Ints, Ints, Ints, Ints, tuple[Ints, Ints, Ints], tuple[int, int, int]]:  # fmt: skip
    """A plan's order, steps, labels and bags; whose they are; and sizes. counts: epochs and bags of each site.

    Compiled code checks no bounds, so words, labels and bags are checked here.
    """
    for word in words:
        if word < 0 or word >= vocabulary:
            raise IndexError("a word is not in the vocabulary")
    sites, total_steps, total_bags, total = len(counts), 0, 0, 0
    parts = np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64)
    first = 0  # of a site's bags
    for site in range(sites):
        epochs, count = counts[site]
        if first + count > len(labels):
            raise IndexError("a site has more bags than there are")
        total_steps += epochs * -(-count // batch_size)
        total_bags += epochs * count
        total += epochs * (bags[first + count] - bags[first])
        first += count
        parts[2][site + 1] = bags[first]
    order, at = np.empty(total, np.int64), 0
    bounds, bag = np.zeros(total_bags + 1, np.int64), 0
    steps, step = np.zeros(total_steps + 1, np.int64), 0
    most_sentences, most_tokens, longest, first = 0, 0, 0, 0
    for site in range(sites):
        epochs, count = counts[site]
        for _ in range(epochs):
            upto = bag + count
            while bag < upto:
                tokens = 0
                for _ in range(min(batch_size, upto - bag)):
                    if orders[bag] < 0 or orders[bag] >= count:
                        raise IndexError("a bag is not the site's")
                    chosen = first + orders[bag]
                    for sentence in range(bags[chosen], bags[chosen + 1]):
                        order[at] = sentence
                        at += 1
                        length = starts[sentence + 1] - starts[sentence]
                        tokens, longest = tokens + length, max(longest, length)
                    bag += 1
                    bounds[bag] = at
                step += 1
                steps[step] = at
                most_sentences = max(most_sentences, at - steps[step - 1])
                most_tokens = max(most_tokens, tokens)
        first += count
        parts[0][site + 1], parts[1][site + 1] = step, bag
    of_sentences = np.empty(len(starts) - 1, np.int64)
    for bag in range(len(labels)):
        if labels[bag] < 0 or labels[bag] >= relations:
            raise IndexError("a label is not a relation")
        of_sentences[bags[bag] : bags[bag + 1]] = labels[bag]
    return order, steps, of_sentences, bounds, parts, (most_sentences, most_tokens, longest)


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
    shape, weights = shape_of(pcnn), weights_of(pcnn)
    vocabulary, relations = len(weights.words), weights.classifier.relations
    steps, _, sizes = plan(batch, [orders], batch_size, vocabulary, relations, one=head == "one")
    fitted = Fitted(np.empty(len(steps.steps) - 1), np.zeros(len(batch.head), np.int64))
    if not len(fitted.losses):
        return fitted
    space = workspace_for(shape, vocabulary, relations, sizes)
    seeds = step_seeds(torch.Generator().manual_seed(seed), len(fitted.losses)).numpy()
    settings = Settings(float(lr), float(weight_decay), float(pcnn.dropout), seeds)
    scale = train(steps, weights, float(pcnn.words.scale), settings, space, *fitted, shape)
    if isinstance(pcnn.words, RowEmbedding):
        pcnn.words.scale = scale
    return fitted


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


def workspace_for(shape: Shape, vocabulary: int, relations: int, sizes: Sizes) -> Workspace:
    """Arrays for steps of at least these sizes, kept from call to call."""
    key = shape, vocabulary, relations
    return cached_workspace(key, sizes, lambda most: _workspace_for(shape, vocabulary, relations, most))


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
