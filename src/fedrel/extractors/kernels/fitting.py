"""A PCNN's weights and a batch's sentences handed to the training kernel, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.batch import Batch
from fedrel.extractors.kernels import layout
from fedrel.extractors.kernels.classifying import Classifier, desk
from fedrel.extractors.kernels.epoch import Plan, Room, Settings, Weights, train
from fedrel.extractors.kernels.gathering import BLOCK
from fedrel.extractors.kernels.layout import Shape, Text
from fedrel.extractors.kernels.scratch import room
from fedrel.extractors.kernels.tile import ROWS
from fedrel.extractors.kernels.vectors import Ints
from fedrel.extractors.kernels.winners import sentence_of, winners_of

if TYPE_CHECKING:
    from fedrel.extractors.pcnn import PCNN


def fit(
    pcnn: PCNN,
    batch: Batch,
    orders: Sequence[Ints],
    batch_size: int,
    lr: float,
    weight_decay: float,
    seed: int,
) -> npt.NDArray[np.float64]:
    """`PCNN.fit`."""
    shape, plan = layout.shape_of(pcnn), _plan(batch, orders, batch_size)
    losses = np.empty(len(plan.steps) - 1)
    if not len(losses):
        return losses
    _check(plan, pcnn)
    # These two live in rows of another length while the kernel works.
    filters = room("filters", (shape.filters, shape.window, shape.pitch))
    filters[:, :, : shape.width] = pcnn.filters.detach().view(shape.filters, shape.window, -1).numpy()
    relations, units = pcnn.classifier.weight.shape
    classifier = room("classifier", (relations + ROWS, layout.whole(units)))
    classifier[:relations, :units] = pcnn.classifier.weight.detach().numpy()
    bias = np.empty(0, np.float32) if pcnn.classifier.bias is None else _array(pcnn.classifier.bias)
    weights = Weights(
        words=_array(pcnn.words.weight),
        touched=_array(pcnn.words.touched),
        head=_array(pcnn.head_positions),
        tail=_array(pcnn.tail_positions),
        filters=filters.reshape(shape.filters, -1),
        bias=_array(pcnn.filters_bias),
        classifier=Classifier(classifier, bias, relations),
    )
    settings = Settings(float(lr), float(weight_decay), float(pcnn.dropout), int(seed))
    pcnn.words.scale = train(
        plan, weights, float(pcnn.words.scale), settings, _room(plan, weights, shape), losses, shape
    )
    _array(pcnn.filters).reshape(shape.filters, shape.window, -1)[:] = filters[:, :, : shape.width]
    _array(pcnn.classifier.weight)[:] = classifier[:relations, :units]
    torch.autograd.graph.increment_version(list(pcnn.parameters()))
    return losses


def _plan(batch: Batch, orders: Sequence[Ints], batch_size: int) -> Plan:
    """The sentences of every step: those of `batch_size` bags, in each epoch's order of the bags."""
    bags = batch.bags.numpy()
    sizes = np.diff(bags)
    order = np.concatenate([*orders, np.empty(0, np.int64)]).astype(np.int64)
    ends = np.cumsum(sizes[order])
    first = np.cumsum([0, *map(len, orders)])
    bounds = [np.arange(begin, end, batch_size) for begin, end in pairwise(first) if end > begin]
    steps = np.concatenate([*bounds, first[-1:]])
    sentence_ends = np.concatenate([[0], ends])
    shift = np.repeat(bags[order] - sentence_ends[:-1], sizes[order])
    return Plan(
        words=batch.words.contiguous().numpy(),
        starts=batch.starts.contiguous().numpy(),
        head=batch.head.contiguous().numpy(),
        tail=batch.tail.contiguous().numpy(),
        labels=np.repeat(batch.labels.numpy(), sizes),
        order=np.arange(len(shift)) + shift,
        steps=sentence_ends[steps],
    )


def _check(plan: Plan, pcnn: PCNN) -> None:
    """A kernel does not look where it reads."""
    for what, numbers, size in (
        ("word", plan.words, len(pcnn.words.weight)),
        ("relation", plan.labels, len(pcnn.classifier.weight)),
    ):
        if numbers.min() < 0 or numbers.max() >= size:
            raise IndexError(f"{what} {numbers.max()} of {size}")


def _room(plan: Plan, weights: Weights, shape: Shape) -> Room:
    lengths = np.diff(plan.starts)
    sentences = int(np.diff(plan.steps).max())
    tokens = int(np.add.reduceat(lengths[plan.order], plan.steps[:-1]).max())
    words = min(tokens, len(weights.words))
    inputs = (tokens + shape.window // 2 * (sentences + 1), shape.pitch)
    return Room(
        text=Text(
            rows=room("text.rows", (tokens,), np.int64),
            starts=room("text.starts", (sentences + 1,), np.int64),
            head=room("text.head", (sentences,), np.int64),
            tail=room("text.tail", (sentences,), np.int64),
        ),
        labels=room("labels", (sentences,), np.int64),
        slot=room("slot", (len(weights.words),), np.int32, fill=-1),
        used=room("used", (words,), np.int64),
        vectors=room("vectors", (words + ROWS, shape.pitch)),
        panels=layout.panels(shape),
        lines=layout.lines(shape, BLOCK, sentences, words),
        places=layout.places(shape, sentences, tokens),
        best=room("best", (sentences, 3, shape.slots)),
        where=room("where", (sentences, 3, shape.slots)),
        desk=desk(shape, weights.classifier.relations, sentences),
        inputs=room("inputs", inputs),
        moves=room("moves", inputs),
        winners=winners_of(shape, sentences),
        sentence=sentence_of(shape, int(lengths.max())),
    )


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's own memory."""
    return tensor.detach().numpy()
