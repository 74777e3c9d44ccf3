"""The built-in corpus: a made-up world with entities, facts and text, of any size and noise (docs/world.md).

Entities have types and aliases, a knowledge base holds facts between them, and text in several writing styles
mentions the pairs. Of every sentence it is known whether it states the relation it is labelled with. Nothing
is copied from anywhere; the same config gives the same bytes.

>>> world = World(WorldConfig(sentences=1000, seed=3))
>>> split, instance = next(world.instances())
>>> instance.text[instance.head.start : instance.head.end] == instance.head.name
True
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import tokenise
from fedrel.data.world.catalogue import RELATIONS
from fedrel.data.world.grammar import Grammar, real_words
from fedrel.data.world.invented_words import Entity, WordMaker, make_entities, make_vocabulary
from fedrel.data.world.knowledge import SplitSize, count_entities, draw_pairs, draw_topics
from fedrel.data.world.prose import MAX_TOKENS, Author, DocumentFile
from fedrel.data.world.styles import STYLES, style_cdf
from fedrel.errors import UserError, nearest
from fedrel.files import atomic_file, atomic_folder
from fedrel.seeding import numpy_generator

SPLITS = ("train", "dev", "test")
_CHUNK = 8192  # sentences that share a generator; another size would change the text of every seed
_LENGTH_SPREAD = 0.4  # sigma of the lognormal sentence length


@dataclass(frozen=True)
class WorldConfig:
    """The settings of a world.

    `sentences` are those of training and development together, `dev` the development share of them; the test
    sentences come on top, `test` times as many. No pair is in two splits.
    """

    sentences: int = 12_000
    relations: int = 10  # NA included
    noise: float = 0.4  # share of the sentences about facts, over all splits, that do not state the fact
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
    """How much train, dev and test hold."""
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


def relation_names(config: WorldConfig) -> tuple[str, ...]:
    """A world's relations, `NA` first, without making the world, which takes seconds for a large one."""
    return (NA, *(relation.name for relation in RELATIONS[: config.relations - 1]))


class World:
    """One made-up world. Names and pairs are in memory; sentences are made while they are iterated over."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self._relations, styles = RELATIONS[: config.relations - 1], STYLES[: config.styles]
        self.relations = relation_names(config)
        self.styles: tuple[str, ...] = tuple(style.name for style in styles)
        sizes = split_sizes(config)
        labels, topics = draw_topics(sizes, len(self._relations), numpy_generator(config.seed, "topics"))
        ranges = count_entities(self._relations, topics)
        maker = WordMaker(numpy_generator(config.seed, "words"), real_words())
        naming = numpy_generator(config.seed, "names")
        self.entities: tuple[Entity, ...] = tuple(
            entity
            for kind, count in ranges.count.items()
            for entity in make_entities(kind, count, maker, naming)
        )
        bystanders = {
            kind: list(make_entities(kind, 100 + count // 2, maker, naming))
            for kind, count in ranges.count.items()
        }
        self._pairs = draw_pairs(
            sizes,
            self._relations,
            labels=labels,
            topics=topics,
            ranges=ranges,
            noise=config.noise,
            popularity=config.popularity,
            missing=config.missing,
            tail=config.bag_tail,
            generator=numpy_generator(config.seed, "pairs"),
        )
        vocabulary = make_vocabulary(config.vocabulary, maker)
        self._grammar = Grammar(self._relations, styles, vocabulary, bystanders, config.seed)
        self._style_cdfs = np.array([style_cdf(styles, relation.topic) for relation in self._relations])

    def facts(self, split: str = "train") -> Iterator[tuple[Entity, str, Entity]]:
        """The triples that the knowledge base has for one split's pairs."""
        return (triple for triple in self._triples(split) if triple[1] != NA)

    def kb(self, path: Path, split: str = "train", *, na: bool = False) -> None:
        """Write a split's facts as a knowledge base that `fedrel align` reads; with `na`, also its NA pairs."""
        with atomic_file(path) as part, part.open("w", encoding="utf-8") as file:
            for head, relation, tail in self._triples(split) if na else self.facts(split):
                row = (head.id, "|".join(head.names), relation, tail.id, "|".join(tail.names))
                file.write("\t".join(row) + "\n")

    def instances(self) -> Iterator[tuple[int, Instance]]:
        """Every sentence with its split (0 train, 1 dev, 2 test), split by split, each in a fixed random order.

        `expresses` says whether the label is right for this sentence: the sentence states the relation or,
        for an NA pair, states none.
        """
        for split in range(len(SPLITS)):
            for instance in self._split(split):
                yield split, instance

    def documents(self, folder: Path, split: str = "train", *, files: int = 4) -> None:
        """Write a split as raw text, `files` files a style, with sentences that mention no pair in between."""
        if folder.exists():
            raise UserError(
                "the folder exists already", file=folder, hint="choose another, or remove it first"
            )
        number, by_id = _split_number(split), {entity.id: entity for entity in self.entities}
        with atomic_folder(folder) as part, ExitStack() as open_files:
            documents = {}
            for index, style in enumerate(self.styles):
                for file in range(files):
                    name = f"{style}-{file:02d}"
                    generator = numpy_generator(self.config.seed, "document", split, name)
                    document = DocumentFile(part / f"{name}.txt", self._grammar, index, generator)
                    documents[style, file] = open_files.enter_context(document)
            for position, instance in enumerate(self._split(number)):
                documents[instance.source, position % files].write(instance.text, by_id[instance.head.id])

    def _triples(self, split: str) -> Iterator[tuple[Entity, str, Entity]]:
        pairs = self._pairs
        for index in np.flatnonzero(pairs.split == _split_number(split)).tolist():
            head, tail = self.entities[pairs.head[index]], self.entities[pairs.tail[index]]
            relation = self.relations[pairs.label[index]]
            yield (tail, relation, head) if pairs.flipped[index] else (head, relation, tail)

    def _split(self, split: int) -> Iterator[Instance]:
        mine = np.flatnonzero(self._pairs.split == split)
        order = np.repeat(mine, self._pairs.size[mine])
        numpy_generator(self.config.seed, "order", split).shuffle(order)
        for chunk, start in enumerate(range(0, len(order), _CHUNK)):
            generator = numpy_generator(self.config.seed, "text", split, chunk)
            yield from self._chunk(order[start : start + _CHUNK], generator)

    def _chunk(self, order: np.ndarray, generator: np.random.Generator) -> Iterator[Instance]:
        """The sentences about the pairs in `order`: draw styles, lengths and truth for all, then make the text."""
        pairs, styles = self._pairs, self._grammar.styles
        style = (generator.random((len(order), 1)) >= self._style_cdfs[pairs.topic[order]]).sum(axis=1)
        mean = (
            self.config.mean_length
            * np.array([s.length for s in styles])
            / np.mean([s.length for s in styles])
        )
        spread = np.exp(_LENGTH_SPREAD * generator.standard_normal(len(order)) - _LENGTH_SPREAD**2 / 2)
        length = np.minimum(mean[style] * spread, MAX_TOKENS).astype(np.int64)
        related = (pairs.label[order] > 0) | pairs.hidden[order]
        states = related & (generator.random(len(order)) >= pairs.noise[order])
        author = Author(self._grammar, generator)
        columns = (
            pairs.head[order],
            pairs.tail[order],
            pairs.label[order],
            pairs.topic[order],
            pairs.flipped[order],
        )
        for h, t, label, topic, flipped, s, words, stated in zip(
            *(column.tolist() for column in (*columns, style, length, states)), strict=True
        ):
            head, tail = self.entities[h], self.entities[t]
            relation = self._relations[topic]
            if stated:
                sentence = author.statement(head, tail, relation, style=s, length=words)
            else:
                sentence = author.mention(head, tail, relation if label else None, style=s, length=words)
            text = sentence.text
            one = Mention(head.id, text[slice(*sentence.head)], *sentence.head)
            two = Mention(tail.id, text[slice(*sentence.tail)], *sentence.tail)
            yield Instance(
                text,
                *((two, one) if flipped else (one, two)),
                self.relations[label],
                source=self.styles[s],
                expresses=stated if label else not stated,
                tokens=tuple(tokenise(text)),
            )


def _split_number(split: str) -> int:
    if split not in SPLITS:
        raise UserError(f"no split named {split!r}", hint=nearest(split, SPLITS))
    return SPLITS.index(split)


def _fact_counts(config: WorldConfig) -> tuple[int, int]:
    """How many sentences are about facts, and how many pairs they mention: at least one pair for each relation."""
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
