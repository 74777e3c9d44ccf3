"""Compiled loops over plain arrays: sums of weights, changed rows of a table, sentences laid end to end, attention.

Each reads every number once and allocates nothing in between. Import this module only where `has_numba` says so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.tensors.compiling import allocating_kernel, inner, kernel

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ShortInts = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_FLAGS_AT_ONCE = 64  # flags that are looked at together: a cache line


# The sums of `fedrel.tensors.weights`, with the same bits as its versions in numpy.


@kernel
def add(total: Doubles, numbers: Floats, weight: float) -> None:
    """total += weight * numbers, both [n]."""
    for i in range(len(total)):
        total[i] += weight * numbers[i]


@kernel
def add_rows(
    total: Doubles, offset: Doubles, place: ShortInts, listed: int, index: ShortInts, values: Floats, weight: float,
    rest: float,
) -> int:  # fmt: skip
    """total += weight * values and offset -= rest where the rows `index` have their places.

    Rows that have none get the next ones; returns how many have one now.
    """
    for number in range(len(index)):
        at = place[index[number]]
        if at < 0:
            at = place[index[number]] = listed
            listed += 1
        offset[at] -= rest
        for k in range(values.shape[1]):
            total[at, k] += weight * values[number, k]
    return listed


@kernel
def mean_of_rows(
    total: Doubles, offset: Doubles, place: ShortInts, base: Floats, rest: float, weight: float, mean: Floats
) -> None:
    """mean = (total + (rest + offset) * base) / weight, [n, d]; rest / weight * base without a place."""
    factor = rest / weight
    for row in range(len(base)):
        at = place[row]
        if at >= 0:
            for k in range(base.shape[1]):
                mean[row, k] = (total[at, k] + (rest + offset[at]) * base[row, k]) / weight
        else:
            for k in range(base.shape[1]):
                mean[row, k] = factor * base[row, k]


# The rows of a word table that a site has changed: a few hundred of a hundred thousand.


@allocating_kernel
def changed_rows(table: Floats, touched: Flags, scale: float) -> tuple[ShortInts, Floats]:
    """The touched rows' numbers, ascending, and the rows themselves times `scale`."""
    rows = np.empty(len(touched), np.int32)  # pages that are never written take no memory
    index = rows[: find_touched(touched, rows)].copy()
    values = np.empty((len(index), table.shape[1]), np.float32)
    for place in range(len(index)):
        row = table[index[place]]
        for k in range(len(row)):
            values[place, k] = row[k] * np.float32(scale)
    return index, values


@allocating_kernel
def reset_rows(table: Floats, touched: Flags, base: Floats) -> int:
    """Set the touched rows back to those of `base` and mark them as untouched; returns how many there were."""
    rows = np.empty(len(touched), np.int32)
    count = find_touched(touched, rows)
    for row in rows[:count]:
        touched[row] = False
        for k in range(table.shape[1]):
            table[row, k] = base[row, k]
    return count


@inner
def find_touched(touched: Flags, rows: ShortInts) -> int:
    """The numbers of the touched rows, ascending; returns how many there are."""
    at = 0
    for first in range(0, len(touched), _FLAGS_AT_ONCE):
        last, found = min(first + _FLAGS_AT_ONCE, len(touched)), False
        for row in range(first, last):
            found |= touched[row]
        if found:
            for row in range(first, last):
                if touched[row]:
                    rows[at] = row
                    at += 1
    return at


@allocating_kernel
def lay_end_to_end(tokens: ShortInts, starts: Ints, lookup: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The word ids of sentences, lookup[tokens], and where each sentence starts among them, [S + 1].

    Compiled code does not check bounds, so they are checked here.
    """
    bounds = np.zeros(len(rows) + 1, np.int64)
    for place, row in enumerate(rows):
        if row < 0 or row >= len(starts) - 1:
            raise IndexError("a row is not in the corpus")
        bounds[place + 1] = bounds[place] + starts[row + 1] - starts[row]
    words, at = np.empty(bounds[-1], np.int64), 0
    for row in rows:
        for token in range(starts[row], starts[row + 1]):
            word = tokens[token]
            if word < 0 or word >= len(lookup):
                raise IndexError("a token is not in the vocabulary")
            words[at] = lookup[word]
            at += 1
    return words, bounds


# ATT's test rule (`fedrel.extractors.heads`): every relation has its own attention over a bag, and its own softmax.


@allocating_kernel
def attention_probabilities(scores: Floats, bias: Floats, bags: Ints) -> Floats:
    """p_r = softmax(sum_i a_ir scores_i + bias)[r] of each bag, [B, R], with a_r the softmax of scores_ir over i.

    `scores` are x_i . w_r, [S, R], `bias` is [R]; bag b is the sentences bags[b] to bags[b + 1]. In a bag of one
    sentence all attention is on that, so that one softmax does for all relations.
    """
    count, relations = len(bags) - 1, scores.shape[1]
    result, logits = np.empty((count, relations), np.float32), np.empty(relations, np.float32)
    for bag in range(count):
        first, last = bags[bag], bags[bag + 1]
        for query in range(relations if last - first > 1 else 1):
            largest, total = np.float32(-np.inf), np.float32(0)
            for sentence in range(first, last):
                largest = max(largest, scores[sentence, query])
            for sentence in range(first, last):
                total += np.exp(scores[sentence, query] - largest)
            for relation in range(relations):
                logits[relation] = bias[relation]
            for sentence in range(first, last):
                share = np.exp(scores[sentence, query] - largest) / total
                for relation in range(relations):
                    logits[relation] += share * scores[sentence, relation]
            largest, total = np.float32(-np.inf), np.float32(0)
            for relation in range(relations):
                largest = max(largest, logits[relation])
            for relation in range(relations):
                logits[relation] = np.exp(logits[relation] - largest)
                total += logits[relation]
            for relation in range(query, query + 1 if last - first > 1 else relations):
                result[bag, relation] = logits[relation] / total
    return result
