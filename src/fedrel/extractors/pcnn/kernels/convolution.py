"""Convolution and pooling, forward and backward.

Forward: each distinct word and distance is multiplied by the filters once. A word adds the same numbers to the
convolution wherever it is, and so do the distances in a token's window, which follow from the token's own distance.
What they add are lines, which `pool` sums up, keeping the maximum of each piece. Filters may be processed in parts,
one after another, so that the lines of a part stay in the cache. A part has as many filters as a line has numbers,
and is named by its first one, `begin`.

Backward: in each piece, one token per filter has the maximum (it won), and only that one has a gradient. So the
gradient of a filter is a weighted sum of the windows in which it won, and the gradient of a window's inputs is a
weighted sum of the filters that won there: about a tenth of the arithmetic of a convolution's usual gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrel.extractors.pcnn.kernels.memory import Lines, Panels, Places, Shape, Text, scratch
from fedrel.tensors.compiling import inner
from fedrel.tensors.simd import (
    COLUMNS,
    Floats,
    Ints,
    Matrix,
    add_weighted,
    multiply,
    raise_to_sums,
)


class Needed(NamedTuple):
    """Which lines of distances some sentences need: how many at ends, and the first and last of each kind."""

    ends: int
    first_head: int
    last_head: int
    first_tail: int
    last_tail: int


@inner
def pack(filters: Floats, step: int, bias: Floats, part: int, panels: Panels, shape: Shape) -> None:
    """Copy filters [filters, window * step] to panels, for parts of so many filters."""
    depth = 2 * shape.window * shape.position
    for slot in range(shape.slots):
        panels.bias[slot] = bias[slot] if slot < shape.filters else 0
    for panel in range(shape.window * shape.slots // COLUMNS):
        offset = panel * COLUMNS // part % shape.window
        first = panel * COLUMNS // (part * shape.window) * part + panel * COLUMNS % part
        words = panels.words[panel * shape.word : (panel + 1) * shape.word]
        to_head = panels.distances[first // COLUMNS * depth + offset * shape.position :]
        to_tail = to_head[shape.window * shape.position :]
        for slot in range(COLUMNS):
            real = first + slot < shape.filters
            one = filters[first + slot if real else 0, offset * step : (offset + 1) * step]
            for k in range(shape.word):
                words[k, slot] = one[k] if real else 0
            for k in range(shape.position):
                to_head[k, slot] = one[shape.word + k] if real else 0
                to_tail[k, slot] = one[shape.word + shape.position + k] if real else 0


@inner
def stretch(vectors: Floats, stretched: Floats, shape: Shape) -> None:
    """Repeat the outermost of the distances' vectors [2 * reach + 1, position], as `Places` has them."""
    before = 2 * (shape.window // 2)
    for row in range(2 * (shape.reach + before) + 1):
        there = min(max(row - before, 0), 2 * shape.reach)
        for k in range(shape.position):
            stretched[row, k] = vectors[there, k]


@inner
def project_words(
    vectors: Floats, count: int, panels: Panels, begin: int, lines: Lines, shape: Shape
) -> None:
    """Compute the lines of so many words from their vectors [count, pitch]."""
    part = lines.numbers.shape[1]
    row = shape.window * part
    right = Matrix(panels.words, begin * shape.window * shape.word, COLUMNS, shape.word * COLUMNS)
    result = Matrix(lines.numbers, lines.words * part, row, 1)
    multiply(Matrix(vectors, 0, shape.pitch, 1), right, result, count, row, shape.word, 1.0, 0.0)


@inner
def project_distances(
    needed: Needed, places: Places, panels: Panels, begin: int, lines: Lines, shape: Shape
) -> None:
    """Compute the lines of the distances to head and tail that are needed."""
    part, depth = lines.numbers.shape[1], shape.window * shape.position
    left = Matrix(places.head, needed.first_head * shape.position, shape.position, 1)
    right = Matrix(panels.distances, begin * 2 * depth, COLUMNS, 2 * depth * COLUMNS)
    result = Matrix(lines.numbers, (lines.head + needed.first_head) * part, part, 1)
    multiply(left, right, result, needed.last_head + 1 - needed.first_head, part, depth, 1.0, 0.0)

    first, count = lines.tail + needed.first_tail, needed.last_tail + 1 - needed.first_tail
    _lay_bias(panels.bias, begin, lines.numbers, first, first + count)
    left = Matrix(places.tail, needed.first_tail * shape.position, shape.position, 1)
    right = Matrix(panels.distances, begin * 2 * depth + depth * COLUMNS, COLUMNS, 2 * depth * COLUMNS)
    multiply(left, right, Matrix(lines.numbers, first * part, part, 1), count, part, depth, 1.0, 1.0)


@inner
def project_ends(count: int, places: Places, panels: Panels, begin: int, lines: Lines, shape: Shape) -> None:
    """Compute the lines of so many tokens near sentences' ends."""
    part, depth = lines.numbers.shape[1], 2 * shape.window * shape.position
    _lay_bias(panels.bias, begin, lines.numbers, lines.ends, lines.ends + count)
    right = Matrix(panels.distances, begin * depth, COLUMNS, depth * COLUMNS)
    result = Matrix(lines.numbers, lines.ends * part, part, 1)
    multiply(Matrix(places.ends, 0, depth, 1), right, result, count, part, depth, 1.0, 1.0)


@inner
def _lay_bias(bias: Floats, begin: int, numbers: Floats, first: int, last: int) -> None:
    for line in range(first, last):
        for slot in range(numbers.shape[1]):
            numbers[line, slot] = bias[begin + slot]


@inner
def convolve_and_pool(
    text: Text, vectors: Floats, words: int, panels: Panels, lines: Lines, places: Places,
    best: Floats, where: Floats, shape: Shape,
) -> None:  # fmt: skip
    """Compute the lines of so many words and of the distances needed, then `pool`, part by part."""
    needed = find(text, lines, places, shape)
    for begin in range(0, shape.slots, lines.numbers.shape[1]):
        project_distances(needed, places, panels, begin, lines, shape)
        project_ends(needed.ends, places, panels, begin, lines, shape)
        project_words(vectors, words, panels, begin, lines, shape)
        pool(text, places.sources, lines, begin, best, where, shape)


@inner
def find(text: Text, lines: Lines, places: Places, shape: Shape) -> Needed:
    """Find the lines of all tokens, and copy the distances near the sentences' ends."""
    half, part, furthest = shape.window // 2, lines.numbers.shape[1], shape.distances // 2
    sources, at, ends = places.sources, 0, 0
    first_head, first_tail, last_head, last_tail = shape.distances, shape.distances, 0, 0
    for sentence in range(len(text.head)):
        begin, end = text.starts[sentence], text.starts[sentence + 1]
        for token in range(begin, end):
            to_head = min(max(token - begin - text.head[sentence], -furthest), furthest) + furthest
            to_tail = min(max(token - begin - text.tail[sentence], -furthest), furthest) + furthest
            if begin + half <= token < end - half:
                for offset in range(shape.window):
                    line = lines.words + text.rows[token + offset - half] * shape.window + offset
                    sources[at + offset] = line * part
                sources[at + shape.window] = (lines.head + to_head) * part
                sources[at + shape.window + 1] = (lines.tail + to_tail) * part
                first_head, last_head = min(first_head, to_head), max(last_head, to_head)
                first_tail, last_tail = min(first_tail, to_tail), max(last_tail, to_tail)
            else:
                for offset in range(shape.window):
                    there = token + offset - half
                    inside = begin <= there < end
                    line = lines.words + text.rows[there] * shape.window + offset if inside else 0
                    sources[at + offset] = line * part
                    for k in range(shape.position):
                        column = offset * shape.position + k
                        places.ends[ends, column] = places.head[to_head + offset, k] if inside else 0
                        column += shape.window * shape.position
                        places.ends[ends, column] = places.tail[to_tail + offset, k] if inside else 0
                sources[at + shape.window] = (lines.ends + ends) * part
                sources[at + shape.window + 1] = 0
                ends += 1
            at += shape.window + 2
    return Needed(ends, first_head, last_head, first_tail, last_tail)


@inner
def pool(
    text: Text, sources: Ints, lines: Lines, begin: int, best: Floats, where: Floats, shape: Shape
) -> None:
    """The largest output of each piece, best [n, 3, slots], and the first token that has it, where [n, 3, slots].

    Outputs that are not above 0 count as 0, and then `where` is -1. If `where` is [0, 3, slots], only the values
    are found. The part's first filter is `begin`; the sources are those of `find`.
    """
    per, part = shape.window + 2, lines.numbers.shape[1]
    for sentence in range(len(text.head)):
        at = (text.starts[sentence] - text.starts[0]) * per
        length = text.starts[sentence + 1] - text.starts[sentence]
        head = min(max(text.head[sentence] + 1, 0), length)
        tail = min(max(text.tail[sentence] + 1, 0), length)
        pieces = (0, min(head, tail), max(head, tail), length)
        for piece in range(3):
            for slot in range(begin, begin + part):
                best[sentence, piece, slot] = 0
            for slot in range(begin, begin + part if len(where) else begin):
                where[sentence, piece, slot] = -1
            token, count = pieces[piece], pieces[piece + 1] - pieces[piece]
            raise_to_sums(
                lines.numbers, part, sources, at + token * per, per, count, token,
                best, where, (sentence * 3 + piece) * shape.slots + begin,
            )  # fmt: skip


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
