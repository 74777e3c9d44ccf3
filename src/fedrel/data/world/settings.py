"""The knobs of the built-in world, two settings of them, and the sizes that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedrel.data.world.catalogue import RELATIONS
from fedrel.data.world.knowledge import SplitSize
from fedrel.data.world.styles import STYLES
from fedrel.errors import UserError


@dataclass(frozen=True)
class WorldConfig:
    """The size and the nature of a world.

    `sentences` are those of training and development together, `dev` the development share of them; the test
    sentences come on top, `test` times as many. No pair is in two splits.
    """

    sentences: int = 12_000
    relations: int = 10  # NA included
    noise: float = 0.4  # share of the sentences about facts, over all splits, that do not state theirs
    popularity: float = 1.0  # the odds of noise grow with the size of a pair's bag to this power
    na_share: float = 0.5  # share of the sentences whose pair is NA
    missing: float = 0.02  # share of the NA pairs that are related all the same
    bag_size: float = 4.0  # mean sentences a pair in the knowledge base
    bag_tail: float = 1.5  # shape of the bag sizes' Lomax tail: smaller is heavier
    pairs: int | None = None  # pairs of training and development; None: NA pairs have bags of `bag_size` too
    mean_length: int = 20  # tokens
    vocabulary: int = 5_000  # invented words, Zipf-distributed
    styles: int = 5
    dev: float = 0.1
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        _check("sentences", self.sentences, 1_000, 1_000_000)
        _check("relations", self.relations, 2, len(RELATIONS) + 1)
        for name in ("noise", "na_share", "missing"):
            _check(name, getattr(self, name), 0.0, 1.0)
        _check("popularity", self.popularity, 0.0, 4.0)
        _check("bag_size", self.bag_size, 1.0, 100.0)
        _check("bag_tail", self.bag_tail, 1.05, 100.0)
        _check("mean_length", self.mean_length, 14, 60)
        _check("vocabulary", self.vocabulary, 100, 1_000_000)
        _check("styles", self.styles, 1, len(STYLES))
        _check("dev", self.dev, 0.0, 0.5)
        _check("test", self.test, 0.0, 1.0)
        if self.pairs is not None:
            facts, fact_pairs = _fact_counts(self)
            na = self.sentences - facts
            _check("pairs", self.pairs, fact_pairs + min(na, 2), fact_pairs + na)


def nyt10_shape(seed: int = 0) -> WorldConfig:
    """A world of NYT10's shape: 467k / 55k / 172k sentences, 53 relations, three quarters of the sentences NA."""
    return WorldConfig(
        sentences=522_000,
        pairs=281_000,
        relations=53,
        na_share=0.74,
        bag_size=7.4,
        mean_length=40,
        vocabulary=114_000,
        styles=8,
        dev=0.1057,
        test=0.3303,
        seed=seed,
    )


def split_sizes(config: WorldConfig) -> tuple[SplitSize, SplitSize, SplitSize]:
    """What train, dev and test hold."""
    facts, fact_pairs = _fact_counts(config)
    na = config.sentences - facts
    if config.pairs is not None:
        na_pairs = config.pairs - fact_pairs
    else:
        na_pairs = min(na, max(2, math.ceil(na / config.bag_size)))
    whole = SplitSize(facts, fact_pairs, na, na_pairs)
    dev = _scaled(whole, config.dev)
    train = SplitSize(
        whole.fact_sentences - dev.fact_sentences,
        whole.fact_pairs - dev.fact_pairs,
        whole.na_sentences - dev.na_sentences,
        whole.na_pairs - dev.na_pairs,
    )
    return train, dev, _scaled(whole, config.test)


def _fact_counts(config: WorldConfig) -> tuple[int, int]:
    """Sentences about facts, and the pairs they are about: enough for every relation, where there is room."""
    facts = round(config.sentences * (1 - config.na_share))
    return facts, min(facts, max(config.relations, math.ceil(facts / config.bag_size)))


def _scaled(whole: SplitSize, share: float) -> SplitSize:
    def part(sentences: int, pairs: int) -> tuple[int, int]:
        scaled = round(sentences * share)
        return scaled, max(min(scaled, 1), round(pairs * share))

    return SplitSize(*part(whole.fact_sentences, whole.fact_pairs), *part(whole.na_sentences, whole.na_pairs))


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} is {value}, expected {low} to {high}", hint=f"set {name} within that range")
