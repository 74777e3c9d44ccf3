"""ONE's choice within a step of training: of each bag the sentence that is likeliest to have the bag's label.

The choice and the step see the same weights. So all sentences of a step's bags go through the convolution once,
those chosen move to the front, and the step goes on with them.
"""

from __future__ import annotations

import numpy as np

from fedrel.extractors.kernels.classifying import Classifier, Desk, enter, find_likelihoods
from fedrel.extractors.kernels.compiling import inner
from fedrel.extractors.kernels.layout import Shape, Text
from fedrel.extractors.kernels.vectors import Floats, Ints


@inner
def choose(
    bags: Ints, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, classifier: Classifier,
    desk: Desk, shape: Shape,
) -> int:  # fmt: skip
    """Keep one sentence of each bag, and all that is known of it, in the bags' order: how many there are.

    Bag b of this step is sentences bags[b] - bags[0] to bags[b + 1] - bags[0]. Of equal ones the first is chosen.
    """
    count = len(bags) - 1
    if count == len(labels):
        return count
    enter(best, len(labels), 0, 0.0, desk, shape)
    find_likelihoods(labels, classifier, desk, shape)
    for bag in range(count):
        chosen = bags[bag] - bags[0]
        for sentence in range(chosen + 1, bags[bag + 1] - bags[0]):
            likely, highest = desk.likely[sentence], desk.likely[chosen]
            if not (likely <= highest or np.isnan(highest)):  # NaN is the highest: nothing may hide it
                chosen = sentence
        _move(chosen, bag, text, numbers, labels, best, where, shape)
    return count


@inner
def _move(
    sentence: int, to: int, text: Text, numbers: Ints, labels: Ints, best: Floats, where: Floats, shape: Shape
) -> None:
    """Put a sentence in the place of another one, which it is not before."""
    begin, length = text.starts[sentence], text.starts[sentence + 1] - text.starts[sentence]
    for token in range(length):
        text.rows[text.starts[to] + token] = text.rows[begin + token]
    text.starts[to + 1] = text.starts[to] + length
    text.head[to], text.tail[to] = text.head[sentence], text.tail[sentence]
    numbers[to], labels[to] = numbers[sentence], labels[sentence]
    for piece in range(3):
        for filter_ in range(shape.filters):
            best[to, piece, filter_] = best[sentence, piece, filter_]
            where[to, piece, filter_] = where[sentence, piece, filter_]
