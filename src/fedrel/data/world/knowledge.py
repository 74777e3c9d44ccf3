"""The pairs of the built-in world: their entities and relations, how often each is mentioned and how noisily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrel.data.world.catalogue import Relation
from fedrel.data.world.invented_words import draw, zipf_cdf

# How concentrated the noise rates of single pairs are around their mean (the sum of the Beta distribution's two
# parameters): at 2 they are flat over 0..1 for noise 0.5, so that some bags have no noise and some nothing else.
NOISE_CONCENTRATION = 2.0


@dataclass(frozen=True, slots=True)
class SplitSize:
    """How many sentences and pairs one split has, with a fact (`fact_`) and without (`na_`)."""

    fact_sentences: int
    fact_pairs: int
    na_sentences: int
    na_pairs: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs as columns.

    `label` is the relation in the knowledge base (0 is NA). `topic` is a relation that the pair's types
    allow: for a fact its label, for an NA pair what the text around it is about. `hidden` pairs have the
    relation `topic`, but the knowledge base says NA. `flipped` pairs are labelled (tail, head).
    """

    head: np.ndarray
    tail: np.ndarray
    label: np.ndarray
    topic: np.ndarray
    hidden: np.ndarray
    flipped: np.ndarray
    noise: np.ndarray
    size: np.ndarray
    split: np.ndarray


@dataclass(frozen=True, slots=True)
class EntityRanges:
    """Where each type's entities are in the list of all: the first one's index, and how many follow."""

    first: dict[str, int]
    count: dict[str, int]


def bag_sizes(sentences: int, pairs: int, tail: float, generator: np.random.Generator) -> np.ndarray:
    """Sizes >= 1 of `pairs` bags that add up to `sentences`, with a Lomax tail of shape `tail`."""
    weights = np.cumsum(generator.pareto(tail, size=pairs))
    edges = np.round(weights / weights[-1] * (sentences - pairs)) if pairs else weights
    return 1 + np.diff(edges, prepend=0).astype(np.int64)


def noise_rates(
    sizes: np.ndarray, facts: np.ndarray, noise: float, popularity: float, generator: np.random.Generator
) -> np.ndarray:
    """The share of noise among the sentences of each pair; over all sentences of facts the mean is `noise`.

    Pairs that are mentioned often are mentioned for many reasons: the odds of noise grow with a bag's size to the
    power of `popularity`. Around that mean, pairs differ at random.
    """
    if not 0 < noise < 1 or not facts.any():
        return np.full(len(sizes), noise)
    weights = sizes[facts] / sizes[facts].sum()
    low, high = -60.0, 60.0  # bounds of the log odds for a bag of one, found by bisection
    for _ in range(80):
        middle = (low + high) / 2
        mean = (weights / (1 + np.exp(-middle) * sizes[facts] ** -popularity)).sum()
        low, high = (low, middle) if mean > noise else (middle, high)
    means = np.clip(1 / (1 + np.exp(-middle) * sizes**-popularity), 1e-3, 1 - 1e-3)
    rates: np.ndarray = generator.beta(means * NOISE_CONCENTRATION, (1 - means) * NOISE_CONCENTRATION)
    return rates


def count_entities(relations: Sequence[Relation], topics: np.ndarray) -> EntityRanges:
    """How many entities of each type these topics need, so that popular ones recur and pairs stay distinct."""
    demand: dict[str, int] = {}
    for relation, pairs in zip(relations, np.bincount(topics, minlength=len(relations)), strict=True):
        for kind in (relation.head, relation.tail):
            demand[kind] = demand.get(kind, 0) + int(pairs)
    count = {kind: max(30, pairs // 10, int(3 * pairs**0.5)) for kind, pairs in demand.items()}
    first = dict(zip(count, np.cumsum([0, *count.values()]).tolist(), strict=False))
    return EntityRanges(first, count)


def draw_topics(
    sizes: Sequence[SplitSize], relations: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels (0 is NA, r + 1 a relation) and topics (r) of all pairs, split by split, facts first.

    Relations are as unequal as in real knowledge bases (Zipf), but each occurs if there are enough pairs.
    """
    cdf = zipf_cdf(relations, offset=2.0)
    labels, topics = [], []
    for size in sizes:
        facts = draw(cdf, generator.random(size.fact_pairs))
        sure = min(relations, size.fact_pairs)
        facts[:sure] = np.arange(sure)
        spread = draw(zipf_cdf(relations, exponent=0.5), generator.random(size.na_pairs))
        labels += [facts + 1, np.zeros(size.na_pairs, dtype=np.int64)]
        topics += [facts, spread]
    return np.concatenate(labels), np.concatenate(topics)


def draw_pairs(
    sizes: Sequence[SplitSize],
    relations: Sequence[Relation],
    *,
    labels: np.ndarray,
    topics: np.ndarray,
    ranges: EntityRanges,
    noise: float,
    popularity: float,
    missing: float,
    tail: float,
    generator: np.random.Generator,
) -> Pairs:
    """Choose two entities for every pair, no two of them twice, how often it is mentioned and how noisily."""
    heads, tails = _distinct(relations, topics, ranges, generator)
    count = len(labels)
    na = labels == 0
    hidden = na & (generator.random(count) < missing)
    flipped = na & ~hidden & (generator.random(count) < 0.2)
    bags = np.concatenate(
        [
            bag_sizes(sentences, pairs, tail, generator)
            for size in sizes
            for sentences, pairs in (
                (size.fact_sentences, size.fact_pairs),
                (size.na_sentences, size.na_pairs),
            )
        ]
    )
    rates = noise_rates(bags, ~na, noise, popularity, generator)
    split = np.repeat(np.arange(len(sizes)), [size.fact_pairs + size.na_pairs for size in sizes])
    return Pairs(heads, tails, labels, topics, hidden, flipped, rates, bags, split)


def _distinct(
    relations: Sequence[Relation], topics: np.ndarray, ranges: EntityRanges, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    total = sum(ranges.count.values())
    heads = np.zeros(len(topics), dtype=np.int64)
    tails = np.zeros(len(topics), dtype=np.int64)
    pending = np.arange(len(topics))
    attempt = 0
    while len(pending):
        # Popular entities are in many pairs; when their pairs are used up, all entities are equally likely.
        exponent = 0.6 if attempt < 20 else 0.0
        for index, relation in enumerate(relations):
            mine = pending[topics[pending] == index]
            for column, kind in ((heads, relation.head), (tails, relation.tail)):
                cdf = zipf_cdf(ranges.count[kind], exponent=exponent, offset=5.0)
                column[mine] = ranges.first[kind] + draw(cdf, generator.random(len(mine)))
        keys = np.minimum(heads, tails) * total + np.maximum(heads, tails)
        settled = np.ones(len(topics), dtype=bool)
        settled[pending] = False
        order = np.argsort(~settled, kind="stable")  # a settled pair keeps its place before a new one
        _, first = np.unique(keys[order], return_index=True)
        fresh = np.zeros(len(topics), dtype=bool)
        fresh[order[first]] = True
        pending = np.flatnonzero(~fresh | (heads == tails))
        attempt += 1
    return heads, tails
