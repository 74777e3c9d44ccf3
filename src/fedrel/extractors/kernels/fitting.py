"""A PCNN's weights and a batch's sentences handed to the training kernel, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fedrel.extractors.base import Fitted
from fedrel.extractors.batch import Batch
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.kernels import layout
from fedrel.extractors.kernels.classifying import Classifier, desk
from fedrel.extractors.kernels.epoch import Room, Settings, Weights, train
from fedrel.extractors.kernels.gathering import BLOCK
from fedrel.extractors.kernels.layout import Shape, Text
from fedrel.extractors.kernels.planning import plan
from fedrel.extractors.kernels.scratch import Sizes, kept, room
from fedrel.extractors.kernels.tile import ROWS
from fedrel.extractors.kernels.vectors import Ints
from fedrel.extractors.kernels.winners import sentence_of, winners_of
from fedrel.extractors.rows import RowEmbedding

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
