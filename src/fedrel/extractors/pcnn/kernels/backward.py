"""The backward pass of convolution and pooling, along the maxima only.

In each piece, one token per filter has the maximum (it won), and only that one has a gradient. So the gradient of a
filter is a weighted sum of the windows in which it won, and the gradient of a window's inputs is a weighted sum of
the filters that won there: about a tenth of the arithmetic of a convolution's usual gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrel.extractors.pcnn.kernels.memory import Places, Shape, Text, scratch
from fedrel.extractors.pcnn.kernels.simd import Floats, Ints, add_weighted
from fedrel.tensors.compiling import inner


class Winners(NamedTuple):
    """The (token, filter) pairs that have a gradient, by filter."""

    counts: Ints  # [filters] how many each filter has
    windows: Ints  # [filters, 3 * n] where each pair's window begins among the inputs
    weights: Floats  # [filters, 3 * n] its gradient, times the factor asked for


class Sentence(NamedTuple):
    """Arrays for one sentence's pairs: as they are found, and sorted by token."""

    filters: Ints  # [3 * filters + 1]
    tokens: Ints  # [3 * filters]
    weights: Floats  # [3 * filters]
    ends: Ints  # [longest] where each token's pairs end
    sorted_filters: Ints  # [3 * filters] where each begins among the filters
    sorted_weights: Floats  # [3 * filters]


@inner
def lay_out_inputs(text: Text, vectors: Floats, places: Places, inputs: Floats, shape: Shape) -> None:
    """Write the inputs of all tokens, [T + half * (n + 1), pitch], with `half` rows of zeros around each sentence.

    `half` is window // 2: a window is then `window * pitch` consecutive numbers. `vectors` are [*, pitch].
    """
    half, furthest, row = shape.window // 2, shape.distances // 2, 0
    for sentence in range(len(text.head)):
        _clear(inputs, row, half)
        row += half
        for token in range(text.starts[sentence + 1] - text.starts[sentence]):
            word = text.rows[text.starts[sentence] + token]
            to_head = min(max(token - text.head[sentence], -furthest), furthest) + furthest + half
            to_tail = min(max(token - text.tail[sentence], -furthest), furthest) + furthest + half
            for k in range(shape.pitch):
                inputs[row, k] = vectors[word, k]
            for k in range(shape.position):
                inputs[row, shape.word + k] = places.head[to_head, k]
                inputs[row, shape.word + shape.position + k] = places.tail[to_tail, k]
            row += 1
    _clear(inputs, row, half)


@inner
def follow(
    text: Text, where: Floats, gradient: Floats, factor: float, filters: Floats, winners: Winners,
    sentence_: Sentence, inputs: Floats, shape: Shape,
) -> None:  # fmt: skip
    """Find the pairs that have a gradient, and `factor` times the gradients of all inputs, laid out like these.

    `gradient` [*, 3 * filters and more] is that of the maxima, `where` [*, 3, slots] has the tokens that won;
    `filters` are [filters, window * pitch].
    """
    half, length, sentences = shape.window // 2, shape.window * shape.pitch, len(text.head)
    _clear(inputs, 0, text.starts[sentences] + half * (sentences + 1))
    for filter_ in range(shape.filters):
        winners.counts[filter_] = 0
    for sentence in range(sentences):
        tokens = text.starts[sentence + 1] - text.starts[sentence]
        first = text.starts[sentence] + half * sentence  # where the first token's window begins
        count = _collect(sentence, tokens, first, where, gradient, factor, winners, sentence_, shape)
        _sort(tokens, count, sentence_, length)
        begin = 0
        for token in range(tokens):
            end = sentence_.ends[token]
            add_weighted(
                filters, length, sentence_.sorted_filters, sentence_.sorted_weights, begin, end,
                inputs, (first + token) * shape.pitch,
            )  # fmt: skip
            begin = end


@inner
def add_filter_gradient(filter_: int, winners: Winners, inputs: Floats, total: Floats, shape: Shape) -> float:
    """Add a filter's gradient, times the factor, to its row of total [filters, window * pitch].

    Returns the gradient of its bias, times the factor.
    """
    length, first = shape.window * shape.pitch, filter_ * winners.windows.shape[1]
    last = first + winners.counts[filter_]
    add_weighted(inputs, length, winners.windows, winners.weights, first, last, total, filter_ * length)
    bias = 0.0
    for pair in range(winners.counts[filter_]):
        bias += winners.weights[filter_, pair]
    return bias


def winners_for(shape: Shape, sentences: int) -> Winners:
    """Arrays for the pairs of so many sentences."""
    size = (shape.filters, 3 * sentences)
    return Winners(
        counts=scratch("winners.counts", (shape.filters,), np.int64),
        windows=scratch("winners.windows", size, np.int64),
        weights=scratch("winners.weights", size),
    )


def sentence_for(shape: Shape, longest: int) -> Sentence:
    """Arrays for the pairs of a sentence of so many tokens."""
    most = 3 * shape.filters
    return Sentence(
        filters=scratch("sentence.filters", (most + 1,), np.int64),
        tokens=scratch("sentence.tokens", (most,), np.int64),
        weights=scratch("sentence.weights", (most,)),
        ends=scratch("sentence.ends", (longest,), np.int64),
        sorted_filters=scratch("sentence.sorted_filters", (most,), np.int64),
        sorted_weights=scratch("sentence.sorted_weights", (most,)),
    )


@inner
def _collect(
    sentence: int, tokens: int, first: int, where: Floats, gradient: Floats, factor: float, winners: Winners,
    sentence_: Sentence, shape: Shape,
) -> int:  # fmt: skip
    """Find a sentence's pairs, add them to those of their filters, and count them by token."""
    for token in range(tokens):
        sentence_.ends[token] = 0
    count = 0
    for piece in range(3):
        seen = count
        for filter_ in range(shape.filters):
            # After dropout this is random: a branch would often be predicted wrongly.
            sentence_.filters[seen] = filter_
            seen += 1 if gradient[sentence, piece * shape.filters + filter_] != 0 else 0
        for number in range(count, seen):
            filter_ = sentence_.filters[number]
            token = int(where[sentence, piece, filter_])
            if token >= 0:
                weight = gradient[sentence, piece * shape.filters + filter_] * np.float32(factor)
                at = winners.counts[filter_]
                winners.counts[filter_] = at + 1
                winners.windows[filter_, at] = (first + token) * shape.pitch
                winners.weights[filter_, at] = weight
                sentence_.filters[count], sentence_.tokens[count] = filter_, token
                sentence_.weights[count] = weight
                sentence_.ends[token] += 1
                count += 1
    return count


@inner
def _sort(tokens: int, count: int, sentence_: Sentence, length: int) -> None:
    """Put a sentence's pairs in the order of their tokens; a filter is `length` numbers long."""
    total = 0
    for token in range(tokens):
        here = sentence_.ends[token]
        sentence_.ends[token] = total
        total += here
    for number in range(count):
        token = sentence_.tokens[number]
        at = sentence_.ends[token]
        sentence_.ends[token] = at + 1
        sentence_.sorted_filters[at] = sentence_.filters[number] * length
        sentence_.sorted_weights[at] = sentence_.weights[number]


@inner
def _clear(rows: Floats, first: int, count: int) -> None:
    for row in range(first, first + count):
        for k in range(rows.shape[1]):
            rows[row, k] = 0
