"""PCNN's encoder as a function of autograd: for any loss that builds on the sentences' vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedrel.extractors.pcnn.kernels.backward import (
    Sentence,
    Winners,
    add_filter_gradient,
    follow,
    lay_out_inputs,
    sentence_for,
    winners_for,
)
from fedrel.extractors.pcnn.kernels.convolution import convolve_and_pool, pack, stretch
from fedrel.extractors.pcnn.kernels.memory import (
    Lines,
    Network,
    Panels,
    Places,
    Shape,
    Text,
    aligned,
    lines_for,
    panels_for,
    places_for,
    scratch,
    shape_of,
    text_of,
)
from fedrel.extractors.pcnn.kernels.simd import BLOCK, ROWS, Floats
from fedrel.tensors.compiling import inner, kernel

if TYPE_CHECKING:
    from fedrel.extractors.batches import Batch


def encode(pcnn: Network, batch: Batch) -> Tensor:
    """The vector of each sentence, [S, 3 * filters], with gradients."""
    words, rows = pcnn.words.distinct(batch.words)
    text = text_of(rows, batch)
    tables = (words, pcnn.head_positions, pcnn.tail_positions, pcnn.filters, pcnn.filters_bias)
    vectors: Tensor = _Encode.apply(text, shape_of(pcnn), *tables)  # type: ignore[no-untyped-call]
    return vectors


class Tables(NamedTuple):
    """A model's weights, or their gradients."""

    words: Floats  # [distinct words, word]
    head: Floats  # [2 * reach + 1, position]
    tail: Floats  # [2 * reach + 1, position]
    filters: Floats  # [filters, window * width]
    bias: Floats  # [filters]


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, text: Text, shape: Shape, *tables: Tensor) -> Tensor:
        """Find the maxima, and keep which tokens they are from."""
        sentences, words = len(text.head), len(tables[0])
        vectors = torch.empty((sentences, 3 * shape.filters))
        ctx.text, ctx.shape, ctx.where = text, shape, aligned((sentences, 3, shape.slots))
        ctx.save_for_backward(*tables)
        _forward(
            text,
            _arrays(tables),
            scratch("vectors", (words + ROWS, shape.pitch)),
            panels_for(shape),
            lines_for(shape, BLOCK, sentences, words),
            places_for(shape, sentences, len(text.rows)),
            scratch("best", (sentences, 3, shape.slots)),
            ctx.where,
            vectors.numpy(),
            shape,
        )
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Sum up along the maxima."""
        text, shape, tables = ctx.text, ctx.shape, ctx.saved_tensors
        sentences, tokens = len(text.head), len(text.rows)
        gradients = [torch.zeros_like(table) for table in tables]
        if not ctx.needs_input_grad[2]:
            gradients[0] = gradients[0][:0]  # words are not trained
        inputs, filters = (
            (tokens + shape.window // 2 * (sentences + 1), shape.pitch),
            (shape.filters, shape.window * shape.pitch),
        )
        _backward(
            text,
            _arrays(tables),
            ctx.where,
            gradient.contiguous().numpy(),
            scratch("vectors", (len(tables[0]) + ROWS, shape.pitch)),
            places_for(shape, sentences, tokens),
            scratch("inputs", inputs),
            scratch("moves", inputs),
            scratch("filters", filters),
            scratch("filter gradients", filters),
            winners_for(shape, sentences),
            sentence_for(shape, tokens),
            _arrays(gradients),
            shape,
        )
        words = gradients[0] if ctx.needs_input_grad[2] else None
        return None, None, words, *gradients[1:]


def _arrays(tensors: Any) -> Tables:
    return Tables(*(tensor.detach().numpy() for tensor in tensors))


@kernel
def _forward(
    text: Text, tables: Tables, vectors: Floats, panels: Panels, lines: Lines, places: Places, best: Floats,
    where: Floats, result: Floats, shape: Shape,
) -> None:  # fmt: skip
    """The maxima, result [n, 3 * filters], and the tokens they are from, where [n, 3, slots]."""
    pack(tables.filters, shape.width, tables.bias, lines.numbers.shape[1], panels, shape)
    _prepare(tables, vectors, places, shape)
    convolve_and_pool(text, vectors, len(tables.words), panels, lines, places, best, where, shape)
    for sentence in range(len(text.head)):
        for piece in range(3):
            for filter_ in range(shape.filters):
                result[sentence, piece * shape.filters + filter_] = best[sentence, piece, filter_]


@kernel
def _backward(
    text: Text, tables: Tables, where: Floats, gradient: Floats, vectors: Floats, places: Places, inputs: Floats,
    moves: Floats, filters: Floats, totals: Floats, winners: Winners, sentence_: Sentence, result: Tables,
    shape: Shape,
) -> None:  # fmt: skip
    """The gradients of all tables, which must be zeros before, from that of the maxima [n, 3 * filters].

    If the result has no rows for words, these are not trained.
    """
    _prepare(tables, vectors, places, shape)
    lay_out_inputs(text, vectors, places, inputs, shape)
    for filter_ in range(shape.filters):
        for offset in range(shape.window):
            for k in range(shape.pitch):
                inside = k < shape.width
                value = tables.filters[filter_, offset * shape.width + k] if inside else 0
                filters[filter_, offset * shape.pitch + k] = value
                totals[filter_, offset * shape.pitch + k] = 0
    follow(text, where, gradient, 1.0, filters, winners, sentence_, moves, shape)
    for filter_ in range(shape.filters):
        result.bias[filter_] = add_filter_gradient(filter_, winners, inputs, totals, shape)
        for offset in range(shape.window):
            for k in range(shape.width):
                result.filters[filter_, offset * shape.width + k] = totals[filter_, offset * shape.pitch + k]
    reach, at = shape.reach, shape.window // 2
    for sentence in range(len(text.head)):
        for token in range(text.starts[sentence + 1] - text.starts[sentence]):
            word = text.rows[text.starts[sentence] + token]
            to_head = min(max(token - text.head[sentence], -reach), reach) + reach
            to_tail = min(max(token - text.tail[sentence], -reach), reach) + reach
            if len(result.words):
                for k in range(shape.word):
                    result.words[word, k] += moves[at, k]
            for k in range(shape.position):
                result.head[to_head, k] += moves[at, shape.word + k]
                result.tail[to_tail, k] += moves[at, shape.word + shape.position + k]
            at += 1
        at += shape.window // 2


@inner
def _prepare(tables: Tables, vectors: Floats, places: Places, shape: Shape) -> None:
    """Copy vectors to rows of `pitch` numbers, and distances with the outermost repeated."""
    stretch(tables.head, places.head, shape)
    stretch(tables.tail, places.tail, shape)
    for row in range(len(tables.words)):
        for k in range(shape.pitch):
            vectors[row, k] = tables.words[row, k] if k < shape.word else 0
