"""Which sentences each step of training takes, for one site or for several that share a call of the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedrel.extractors.batches import Batch
from fedrel.extractors.dropout import step_seeds
from fedrel.extractors.pcnn.kernels.memory import Sizes
from fedrel.extractors.pcnn.kernels.several_sites import Parts
from fedrel.extractors.pcnn.kernels.training import Plan
from fedrel.tensors.compiling import allocating_kernel
from fedrel.tensors.simd import Ints


def plan(
    batch: Batch, several: Sequence[Sequence[Ints]], batch_size: int, vocabulary: int, relations: int,
    seeds: Sequence[int], *, by_bags: bool,
) -> tuple[Plan, Parts, Sizes]:  # fmt: skip
    """The sentences of every step, `batch_size` bags in each epoch's order, and the sizes of the largest step.

    `several` has the orders of each site: the batch has the first site's bags, then the second's, and so on.
    `by_bags`: the head reads bags, and needs to know where they begin.
    """
    words, starts, head, tail, bags, labels = (
        tensor.contiguous().numpy()
        for tensor in (batch.words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels)
    )
    counts = np.array([[len(orders), len(orders[0]) if orders else 0] for orders in several])
    of_bags = np.concatenate([np.empty(0, np.int64), *(each for orders in several for each in orders)])
    order, steps, of_sentences, bounds, parts, sizes = _lay_out(
        of_bags, counts, bags, labels, starts, words, batch_size, vocabulary, relations
    )
    drawn = [
        step_seeds(torch.Generator().manual_seed(seed), count).numpy()
        for seed, count in zip(seeds, np.diff(parts[0]).tolist(), strict=True)
    ]
    bounds = bounds if by_bags else order[:0]
    found = Plan(words, starts, head, tail, of_sentences, order, steps, bounds, np.concatenate(drawn))
    return found, Parts(*parts), Sizes(*sizes)


@allocating_kernel
def _lay_out(
    orders: Ints, counts: Ints, bags: Ints, labels: Ints, starts: Ints, words: Ints, batch_size: int,
    vocabulary: int, relations: int,
) -> tuple[Ints, Ints, Ints, Ints, tuple[Ints, Ints, Ints], tuple[int, int, int]]:  # fmt: skip
    """A plan's order, steps, labels and bags; whose they are; and sizes. counts: epochs and bags of each site.

    Compiled code checks no bounds, so words, labels and bags are checked here.
    """
    for word in words:
        if word < 0 or word >= vocabulary:
            raise IndexError("a word is not in the vocabulary")
    sites, total_steps, total_bags, total = len(counts), 0, 0, 0
    parts = np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64), np.zeros(sites + 1, np.int64)
    first = 0  # of a site's bags
    for site in range(sites):
        epochs, count = counts[site]
        if first + count > len(labels):
            raise IndexError("a site has more bags than there are")
        total_steps += epochs * -(-count // batch_size)
        total_bags += epochs * count
        total += epochs * (bags[first + count] - bags[first])
        first += count
        parts[2][site + 1] = bags[first]
    order, at = np.empty(total, np.int64), 0
    bounds, bag = np.zeros(total_bags + 1, np.int64), 0
    steps, step = np.zeros(total_steps + 1, np.int64), 0
    most_sentences, most_tokens, longest, first = 0, 0, 0, 0
    for site in range(sites):
        epochs, count = counts[site]
        for _ in range(epochs):
            upto = bag + count
            while bag < upto:
                tokens = 0
                for _ in range(min(batch_size, upto - bag)):
                    if orders[bag] < 0 or orders[bag] >= count:
                        raise IndexError("a bag is not the site's")
                    chosen = first + orders[bag]
                    for sentence in range(bags[chosen], bags[chosen + 1]):
                        order[at] = sentence
                        at += 1
                        length = starts[sentence + 1] - starts[sentence]
                        tokens, longest = tokens + length, max(longest, length)
                    bag += 1
                    bounds[bag] = at
                step += 1
                steps[step] = at
                most_sentences = max(most_sentences, at - steps[step - 1])
                most_tokens = max(most_tokens, tokens)
        first += count
        parts[0][site + 1], parts[1][site + 1] = step, bag
    of_sentences = np.empty(len(starts) - 1, np.int64)
    for bag in range(len(labels)):
        if labels[bag] < 0 or labels[bag] >= relations:
            raise IndexError("a label is not a relation")
        of_sentences[bags[bag] : bags[bag + 1]] = labels[bag]
    return order, steps, of_sentences, bounds, parts, (most_sentences, most_tokens, longest)
