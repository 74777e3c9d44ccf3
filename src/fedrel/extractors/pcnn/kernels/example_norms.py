"""The norm of each example's gradient, without the gradient itself, and gradients scaled down to a bound.

A sentence's gradient of a filter is g_1 w_1 + g_2 w_2 + g_3 w_3: of each piece, the window w that has the maximum,
times the maximum's own gradient g. So its squared norm is a sum of products of these windows, g_i g_j (w_i . w_j),
and a step's gradients stay what they are in plain training: sums over all its sentences. Of the classifier, a
sentence's gradient is the product of its inputs and of its logits' gradient, and so is its norm. Of the tables of
distances and words, it is the gradient of the sentence's inputs, added up where a row is used more than once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedrel.extractors.pcnn.kernels.classify import ClassifierWorkspace
from fedrel.extractors.pcnn.kernels.convolution import Winners
from fedrel.extractors.pcnn.kernels.memory import Shape, Text, scratch
from fedrel.extractors.row_tables import GAP
from fedrel.tensors.compiling import inner
from fedrel.tensors.simd import BLOCK, LANES, Code, Floats, Ints

_FEWEST = 1e-30  # a norm below it needs no scaling, and could not be divided by


class NormWorkspace(NamedTuple):
    """Arrays to work in."""

    squares: Floats  # [longest] of each token's window
    ends: Floats  # [4, position] the gradients of the outermost distances: to the head and to the tail, two each
    by_word: (
        Floats  # [distinct words, word] the gradients of a sentence's words; [0, word]: words are not trained
    )
    factors: Floats  # [n] what each sentence's gradient is multiplied by


def norm_workspace_for(shape: Shape, sentences: int, longest: int, words: int) -> NormWorkspace:
    """A workspace for so many sentences, the longest of so many tokens, of so many trained words."""
    return NormWorkspace(
        squares=scratch("norms.squares", (longest,)),
        ends=scratch("norms.ends", (4, shape.position)),
        by_word=scratch("norms.words", (words, shape.word)),
        factors=scratch("norms.factors", (sentences,)),
    )


@inner
def find_norms(
    text: Text, used: Ints, where: Floats, inputs: Floats, moves: Floats, relations: int, biased: bool,
    classifying: ClassifierWorkspace, space: NormWorkspace, norms: npt.NDArray[np.float64], shape: Shape,
) -> None:  # fmt: skip
    """The norm of each sentence's gradient over all weights.

    `inputs` are those of `lay_out_inputs`, `moves` their gradients as `follow` finds them, and the logits have been
    replaced by their gradients.
    """
    half, units = shape.window // 2, classifying.entering.shape[1]
    for sentence in range(len(text.head)):
        tokens = text.starts[sentence + 1] - text.starts[sentence]
        first = text.starts[sentence] + half * sentence  # where the first token's window begins
        logits = 0.0
        for relation in range(relations):
            logits += np.float64(classifying.logits[relation, sentence]) ** 2
        for unit in range(3 * shape.filters, units):
            classifying.entering[sentence, unit] = 0  # what fills up a row may be left over from other work
        place = sentence * units
        entering = product(classifying.entering, place, classifying.entering, place, units // BLOCK)
        total = logits * (np.float64(entering) + (1 if biased else 0))
        total += _of_filters(
            sentence, tokens, first, where, classifying.gradient, inputs, space.squares, shape
        )
        total += _of_distances(sentence, tokens, first + half, text, moves, space.ends, shape)
        if len(space.by_word):
            total += _of_words(
                text.rows[text.starts[sentence] : text.starts[sentence + 1]],
                used,
                first + half,
                moves,
                space.by_word,
                shape,
            )
        norms[sentence] = np.sqrt(total)


@inner
def _of_filters(
    sentence: int, tokens: int, first: int, where: Floats, gradient: Floats, inputs: Floats, squares: Floats,
    shape: Shape,
) -> float:  # fmt: skip
    """The squared norm of the gradient of all filters and their biases."""
    blocks, total = shape.window * shape.pitch // BLOCK, 0.0
    for token in range(tokens):
        place = (first + token) * shape.pitch
        squares[token] = product(inputs, place, inputs, place, blocks)
    for filter_ in range(shape.filters):
        bias = 0.0
        for piece in range(3):
            slope = np.float64(gradient[sentence, piece * shape.filters + filter_])
            token = int(where[sentence, piece, filter_])
            if slope == 0 or token < 0:
                continue
            bias += slope
            total += slope * slope * squares[token]
            for earlier in range(piece):
                other = np.float64(gradient[sentence, earlier * shape.filters + filter_])
                there = int(where[sentence, earlier, filter_])
                if other != 0 and there >= 0:
                    crossed = product(
                        inputs, (first + token) * shape.pitch, inputs, (first + there) * shape.pitch, blocks
                    )
                    total += 2 * slope * other * crossed
        total += bias * bias
    return total


@inner
def _of_distances(
    sentence: int, tokens: int, first: int, text: Text, moves: Floats, ends: Floats, shape: Shape
) -> float:
    """The squared norm of the gradient of the distances' vectors; the outermost ones serve several tokens."""
    total = 0.0
    for end in range(4):
        for k in range(shape.position):
            ends[end, k] = 0
    for kind in range(2):
        entity = text.head[sentence] if kind == 0 else text.tail[sentence]
        begin = shape.word + kind * shape.position
        for token in range(tokens):
            away = token - entity
            if -shape.reach < away < shape.reach:
                for k in range(begin, begin + shape.position):
                    total += np.float64(moves[first + token, k]) ** 2
            else:
                end = 2 * kind + (1 if away > 0 else 0)
                for k in range(shape.position):
                    ends[end, k] += moves[first + token, begin + k]
    for end in range(4):
        for k in range(shape.position):
            total += np.float64(ends[end, k]) ** 2
    return total


@inner
def _of_words(rows: Ints, used: Ints, first: int, moves: Floats, by_word: Floats, shape: Shape) -> float:
    """The squared norm of the gradient of the words' vectors: a word may stand in a sentence twice."""
    total = 0.0
    for row in rows:
        for k in range(shape.word):
            by_word[row, k] = 0
    for token in range(len(rows)):
        for k in range(shape.word):
            by_word[rows[token], k] += moves[first + token, k]
    for row in rows:
        if used[row] != GAP:
            for k in range(shape.word):
                total += np.float64(by_word[row, k]) ** 2
                by_word[row, k] = 0  # so that it counts once
    return total


@inner
def clip(
    norms: npt.NDArray[np.float64], bound: float, expected: float, factor: float, text: Text, relations: int,
    classifying: ClassifierWorkspace, winners: Winners, moves: Floats, factors: Floats, shape: Shape,
) -> None:  # fmt: skip
    """Make the step's mean over its sentences a sum of clipped gradients divided by the expected size of a step.

    `norms` are those of the mean's summands, which are 1/n of the sentences' gradients; they become those of the
    gradients themselves. Winners and moves get `factor` as well. A gradient that is not finite counts as zero: what
    one example can change is bounded, whatever it is.
    """
    count, half, rows = len(text.head), shape.window // 2, shape.window // 2
    for sentence in range(count):
        norms[sentence] *= count
        norm = norms[sentence]
        share = min(1.0, bound / norm) if norm > _FEWEST else 1.0
        factors[sentence] = count / expected * share if np.isfinite(norm) else 0.0
    for relation in range(relations):
        for sentence in range(count):
            slope = classifying.logits[relation, sentence] * factors[sentence]
            classifying.logits[relation, sentence] = slope if factors[sentence] else np.float32(0)
    for sentence in range(count):
        kept = np.float32(factors[sentence] * factor)
        if kept == 0:
            for unit in range(classifying.entering.shape[1]):
                classifying.entering[sentence, unit] = 0
        for row in range(rows, rows + text.starts[sentence + 1] - text.starts[sentence]):
            for k in range(shape.pitch):
                moves[row, k] = moves[row, k] * kept if kept else np.float32(0)
        rows += text.starts[sentence + 1] - text.starts[sentence] + half
    for filter_ in range(shape.filters):
        sentence = 0
        for pair in range(winners.counts[filter_]):
            row = winners.windows[filter_, pair] // shape.pitch
            while row >= text.starts[sentence + 1] + half * (sentence + 1):
                sentence += 1
            kept = np.float32(factors[sentence] * factor)
            winners.weights[filter_, pair] = winners.weights[filter_, pair] * kept if kept else np.float32(0)


@intrinsic  # type: ignore[untyped-decorator]
def product(_: Any, a: Any, a_at: Any, b: Any, b_at: Any, blocks: Any) -> Any:
    """The sum of a[a_at + i] * b[b_at + i] over so many whole blocks."""
    signature = types.float32(a, types.int64, b, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        a, a_at, b, b_at, blocks = code.arguments
        sums = [code.variable(code.zero()) for _ in range(BLOCK // LANES)]
        with code.loop(blocks) as block:
            for number, total in enumerate(sums):
                left, right = (
                    code.vector(array, code.place(at, (block, BLOCK), number * LANES))
                    for array, at in ((a, a_at), (b, b_at))
                )
                code.set(total, code.multiply_add(left, right, code.get(total)))
        parts = [code.get(total) for total in sums]
        while len(parts) > 1:
            parts = [code.add(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
        return _across(builder, parts[0])

    return signature, generate


def _across(builder: Any, vector: Any) -> Any:
    """The sum of a vector's numbers: it is turned by half its length and added, then by a quarter, and so on."""
    undefined, number = ir.Constant(vector.type, ir.Undefined), ir.IntType(32)
    turn = LANES // 2
    while turn:
        places = [(lane + turn) % LANES for lane in range(LANES)]
        turned = ir.Constant(ir.VectorType(number, LANES), places)
        vector = builder.fadd(vector, builder.shuffle_vector(vector, undefined, turned))
        turn //= 2
    return builder.extract_element(vector, ir.Constant(number, 0))
