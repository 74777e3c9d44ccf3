"""Which sentences each step of training takes, and how much room the largest step needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrel.extractors.batch import Batch
from fedrel.extractors.kernels.compiling import kernel
from fedrel.extractors.kernels.epoch import Plan
from fedrel.extractors.kernels.scratch import Sizes
from fedrel.extractors.kernels.vectors import Ints


def plan(
    batch: Batch, orders: Sequence[Ints], batch_size: int, vocabulary: int, relations: int, *, one: bool
) -> tuple[Plan, Sizes]:
    """The sentences of every step: those of `batch_size` bags, in each epoch's order of all bags.

    `one`: of each bag, one sentence is to be trained on.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    of_bags = np.array(orders, np.int64).reshape(len(orders), len(labels))
    order, steps, of_sentences, sizes = _lay_out(
        of_bags, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    bounds = np.concatenate([[0], np.cumsum(np.diff(bags)[of_bags.ravel()])]) if one else order[:0]
    return Plan(words, starts, head, tail, of_sentences, order, steps, bounds), Sizes(*sizes)


@kernel
def _lay_out(
    orders: Ints, bags: Ints, labels: Ints, starts: Ints, words: Ints, batch_size: int, vocabulary: int,
    relations: int,
) -> tuple[Ints, Ints, Ints, tuple[int, int, int]]:  # fmt: skip
    """A plan's order, steps and labels. Kernels do not look where they read: what they will read is checked."""
    for word in words:
        if word < 0 or word >= vocabulary:
            raise IndexError("a word is not in the vocabulary")
    epochs, count = orders.shape
    order, at = np.empty(epochs * (len(starts) - 1), np.int64), 0
    steps, step = np.zeros(epochs * -(-count // batch_size) + 1, np.int64), 0
    most_sentences, most_tokens, longest = 0, 0, 0
    for epoch in range(epochs):
        for begin in range(0, count, batch_size):
            tokens = 0
            for bag in orders[epoch, begin : begin + batch_size]:
                for sentence in range(bags[bag], bags[bag + 1]):
                    order[at] = sentence
                    at += 1
                    length = starts[sentence + 1] - starts[sentence]
                    tokens, longest = tokens + length, max(longest, length)
            step += 1
            steps[step] = at
            most_sentences, most_tokens = max(most_sentences, at - steps[step - 1]), max(most_tokens, tokens)
    of_sentences = np.empty(len(starts) - 1, np.int64)
    for bag in range(count):
        if labels[bag] < 0 or labels[bag] >= relations:
            raise IndexError("a label is not a relation")
        of_sentences[bags[bag] : bags[bag + 1]] = labels[bag]
    return order, steps, of_sentences, (most_sentences, most_tokens, longest)
