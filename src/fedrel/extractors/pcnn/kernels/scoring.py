"""Sentences' vectors without gradients: while the weights stay the same, each word meets the filters once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedrel.extractors.pcnn.kernels.convolution import (
    Needed,
    find,
    pack,
    pool,
    project_distances,
    project_ends,
    project_words,
    stretch,
)
from fedrel.extractors.pcnn.kernels.memory import (
    Lines,
    Network,
    Panels,
    Places,
    Shape,
    Text,
    lines_for,
    new_array,
    panels_for,
    places_for,
    scratch,
    shape_of,
    text_of,
)
from fedrel.extractors.pcnn.kernels.simd import ROWS, Floats, Ints
from fedrel.tensors.compiling import kernel

if TYPE_CHECKING:
    from fedrel.extractors.batches import Batch


_LARGEST = 128 << 20  # bytes for words' lines; with more words, the table starts anew
_AT_ONCE = 64  # sentences whose lines are found before they are summed up, so that these stay in the cache


class Table:
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
            _begin(
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
        met = _meet(ids, memory.slot, memory.known, self._met, rows)
        if met < 0:
            self._forget(memory)
            met = _meet(ids, memory.slot, memory.known, 0, rows)
        fresh = scratch("vectors", (met - self._met + ROWS, shape.pitch))
        if met > self._met:
            words = torch.from_numpy(memory.known[self._met : met])
            fresh[: met - self._met, : shape.word] = pcnn.words.at(words).numpy()
        _encode(
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
def _begin(
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
def _meet(ids: Ints, slot: npt.NDArray[np.int32], known: Ints, met: int, rows: Ints) -> int:
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
def _encode(
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
