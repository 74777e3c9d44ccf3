"""Sentences' vectors from kernels: as a function of autograd, and without gradients.

With gradients, any loss that builds on the vectors can be trained. Without, words times filters are kept in a table
as long as the weights stay the same, so that each word is multiplied once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedrel.extractors.pcnn.kernels.convolution import (
    Needed,
    Sentence,
    Winners,
    add_filter_gradient,
    convolve_and_pool,
    find,
    follow,
    lay_out_inputs,
    pack,
    pool,
    project_distances,
    project_ends,
    project_words,
    sentence_for,
    stretch,
    winners_for,
)
from fedrel.extractors.pcnn.kernels.memory import (
    Lines,
    Network,
    Panels,
    Places,
    Shape,
    Text,
    aligned,
    lines_for,
    new_array,
    panels_for,
    places_for,
    scratch,
    shape_of,
    text_of,
)
from fedrel.tensors.compiling import inner, kernel
from fedrel.tensors.simd import BLOCK, ROWS, Floats, Ints

if TYPE_CHECKING:
    from fedrel.extractors.batches import Batch


_LARGEST = 128 << 20  # bytes for words' lines; with more words, the table starts anew
_AT_ONCE = 64  # sentences whose lines are found before they are summed up, so that these stay in the cache


def encode(pcnn: Network, batch: Batch) -> Tensor:
    """The vector of each sentence, [S, 3 * filters], with gradients."""
    words, rows = pcnn.words.distinct(batch.words)
    text = text_of(rows, batch)
    tables = (words, pcnn.head_positions, pcnn.tail_positions, pcnn.filters, pcnn.filters_bias)
    vectors: Tensor = _Encode.apply(text, shape_of(pcnn), *tables)  # type: ignore[no-untyped-call]
    return vectors


class ScoringTable:
    """Words times filters for one state of the weights; each word is added when it is first used.

    It is a cache and no part of a model: a copy of the model begins with an empty one.
    """

    def __init__(self) -> None:
        self.state: object = None
        self._memory: _Memory | None = None
        self._met = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"state": None, "_memory": None, "_met": 0}

    def encode(self, pcnn: Network, batch: Batch, state: object) -> Tensor:
        """The vector of each sentence, [S, 3 * filters]; another `state`, or None: the weights may have changed."""
        shape, vocabulary, tokens = shape_of(pcnn), len(pcnn.words.weight), len(batch.words)
        vectors = torch.empty((len(batch.head), 3 * shape.filters))
        if not tokens:
            return vectors.zero_()
        ids = batch.words.contiguous().numpy()
        if ids.min() < 0 or ids.max() >= vocabulary:
            raise IndexError(f"word {ids.max()} of {vocabulary}")
        memory = self._memory
        if memory is None or len(memory.known) < min(tokens, vocabulary):
            memory = self._memory = _memory(shape, vocabulary, tokens)
            self.state = None
        if state is None or state != self.state:
            self._forget(memory)
            _prepare_table(
                pcnn.filters.detach().numpy(),
                pcnn.filters_bias.detach().numpy(),
                pcnn.head_positions.detach().numpy(),
                pcnn.tail_positions.detach().numpy(),
                memory.panels,
                memory.lines,
                memory.places,
                shape,
            )
            self.state = state
        rows = scratch("text.rows", (tokens,), np.int64)
        met = _number_words(ids, memory.slot, memory.known, self._met, rows)
        if met < 0:
            self._forget(memory)
            met = _number_words(ids, memory.slot, memory.known, 0, rows)
        fresh = scratch("vectors", (met - self._met + ROWS, shape.pitch))
        if met > self._met:
            words = torch.from_numpy(memory.known[self._met : met])
            fresh[: met - self._met, : shape.word] = pcnn.words.at(words).numpy()
        _find_maxima(
            text_of(torch.from_numpy(rows), batch),
            fresh,
            self._met,
            memory.lines,
            memory.panels,
            places_for(shape, _AT_ONCE, tokens)._replace(head=memory.places.head, tail=memory.places.tail),
            scratch("best", (_AT_ONCE, 3, shape.slots)),
            scratch("where", (0, 3, shape.slots)),
            vectors.numpy(),
            shape,
        )
        self._met = met
        return vectors

    def _forget(self, memory: _Memory) -> None:
        memory.slot.fill(-1)
        self._met = 0


class EncoderWeights(NamedTuple):
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


def _arrays(tensors: Any) -> EncoderWeights:
    return EncoderWeights(*(tensor.detach().numpy() for tensor in tensors))


@kernel
def _forward(
    text: Text, tables: EncoderWeights, vectors: Floats, panels: Panels, lines: Lines, places: Places, best: Floats,
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
    text: Text, tables: EncoderWeights, where: Floats, gradient: Floats, vectors: Floats, places: Places,
    inputs: Floats, moves: Floats, filters: Floats, totals: Floats, winners: Winners, sentence_: Sentence,
    result: EncoderWeights, shape: Shape,
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
def _prepare(tables: EncoderWeights, vectors: Floats, places: Places, shape: Shape) -> None:
    """Copy vectors to rows of `pitch` numbers, and distances with the outermost repeated."""
    stretch(tables.head, places.head, shape)
    stretch(tables.tail, places.tail, shape)
    for row in range(len(tables.words)):
        for k in range(shape.pitch):
            vectors[row, k] = tables.words[row, k] if k < shape.word else 0


class _Memory(NamedTuple):
    slot: npt.NDArray[np.int32]  # [vocabulary] a word's number in the table, or -1
    known: Ints  # [most] the words by number
    panels: Panels
    lines: Lines
    places: Places


def _memory(shape: Shape, vocabulary: int, tokens: int) -> _Memory:
    """Arrays for at least the words of so many tokens."""
    most = min(vocabulary, max(tokens, _LARGEST // (4 * shape.window * shape.slots)))
    return _Memory(
        slot=np.full(vocabulary, -1, np.int32),
        known=np.empty(most, np.int64),
        panels=panels_for(shape, new_array),
        lines=lines_for(shape, shape.slots, _AT_ONCE, most, new_array),
        places=places_for(shape, 0, 0, new_array),
    )


@kernel
def _prepare_table(
    filters: Floats, bias: Floats, head: Floats, tail: Floats, panels: Panels, lines: Lines, places: Places,
    shape: Shape,
) -> None:  # fmt: skip
    """Compute what does not depend on words: the filters in panels, and the lines of all distances."""
    pack(filters, shape.width, bias, shape.slots, panels, shape)
    stretch(head, places.head, shape)
    stretch(tail, places.tail, shape)
    every = Needed(0, 0, shape.distances - 1, 0, shape.distances - 1)
    for begin in range(0, shape.slots, lines.numbers.shape[1]):
        project_distances(every, places, panels, begin, lines, shape)


@kernel
def _number_words(ids: Ints, slot: npt.NDArray[np.int32], known: Ints, met: int, rows: Ints) -> int:
    """Find each token's row in the table; words that are new to it get the next ones.

    Returns how many words are known then, or -1 if the table is too small.
    """
    for token in range(len(ids)):
        word = ids[token]
        if slot[word] < 0:
            if met == len(known):
                return -1
            slot[word] = met
            known[met] = word
            met += 1
        rows[token] = slot[word]
    return met


@kernel
def _find_maxima(
    text: Text, fresh: Floats, met: int, lines: Lines, panels: Panels, places: Places, best: Floats, where: Floats,
    result: Floats, shape: Shape,
) -> None:  # fmt: skip
    """The maxima, result [n, 3 * filters]. Words from number `met` on are `fresh`: not in the table yet."""
    for first in range(0, len(text.head), _AT_ONCE):
        last = min(first + _AT_ONCE, len(text.head))
        some = Text(text.rows, text.starts[first : last + 1], text.head[first:last], text.tail[first:last])
        upto = met  # words are numbered as they appear, so new ones are projected just before their first use
        for token in range(text.starts[first], text.starts[last]):
            upto = max(upto, text.rows[token] + 1)
        free = lines.words + met * shape.window
        fresh_lines = Lines(lines.numbers, lines.head, lines.tail, lines.ends, free)
        needed = find(some, lines, places, shape)
        for begin in range(0, shape.slots, lines.numbers.shape[1]):
            project_words(fresh, upto - met, panels, begin, fresh_lines, shape)
            project_ends(needed.ends, places, panels, begin, lines, shape)
            pool(some, places.sources, lines, begin, best, where, shape)
        fresh, met = fresh[upto - met :], upto
        for sentence in range(first, last):
            for piece in range(3):
                for filter_ in range(shape.filters):
                    result[sentence, piece * shape.filters + filter_] = best[sentence - first, piece, filter_]
