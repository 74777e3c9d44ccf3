"""The convolution as sums of lines, token by token, and the largest of each piece.

A token's output is the sum of the lines of the words in its window, one line for its distance to the head and one
for its distance to the tail. Where a part of the window is missing, at a sentence's ends, the words there add
nothing, and head and tail have one line of the token's own.
"""

from __future__ import annotations

from fedrel.extractors.kernels.compiling import inner
from fedrel.extractors.kernels.gathering import raise_to_sums
from fedrel.extractors.kernels.layout import Lines, Panels, Places, Shape, Text
from fedrel.extractors.kernels.projecting import Needed, project_distances, project_ends, project_words
from fedrel.extractors.kernels.vectors import Floats, Ints


@inner
def convolve_and_pool(
    text: Text, vectors: Floats, words: int, panels: Panels, lines: Lines, places: Places,
    best: Floats, where: Floats, shape: Shape,
) -> None:  # fmt: skip
    """Project so many words and the distances that are needed, then `pool`: all parts, all sentences."""
    needed = find(text, lines, places, shape)
    for begin in range(0, shape.slots, lines.numbers.shape[1]):
        project_distances(needed, places, panels, begin, lines, shape)
        project_ends(needed.ends, places, panels, begin, lines, shape)
        project_words(vectors, words, panels, begin, lines, shape)
        pool(text, places.sources, lines, begin, best, where, shape)


@inner
def find(text: Text, lines: Lines, places: Places, shape: Shape) -> Needed:
    """Find the lines of all tokens, and the distances at the sentences' ends."""
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

    What is not above 0 counts as 0 and is nobody's: -1. If `where` is [0, 3, slots], only the values are found.
    The part's first filter is `begin`; the sources are those that `find` found.
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
