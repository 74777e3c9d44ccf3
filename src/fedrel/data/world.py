"""The built-in corpus: a small made-up world, as large and as noisy as one asks for.

Typed entities with aliases, a knowledge base of facts between them, and text in several writing styles that mentions
the pairs, where it is known of every sentence whether it states the relation it is labelled with. Nothing is copied
from anywhere; the same config gives the same bytes.

>>> world = World(WorldConfig(sentences=1000, seed=3))
>>> split, instance = next(world.instances())
>>> instance.text[instance.head.start : instance.head.end] == instance.head.name
True
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrel.data.instances import NA, Instance, Mention
from fedrel.data.text import tokenise
from fedrel.data.world_entities import TYPES, Entity, make_entities
from fedrel.data.world_filler import make_vocabulary
from fedrel.data.world_pairs import SPLITS, SplitSize, draw_pairs, draw_topics, take_census
from fedrel.data.world_relations import RELATIONS
from fedrel.data.world_sentences import MAX_TOKENS, Grammar, Writer
from fedrel.data.world_styles import STYLES, TOPICS
from fedrel.data.world_words import WordMint, draw
from fedrel.errors import UserError
from fedrel.files import atomic_file, atomic_folder
from fedrel.seeding import numpy_generator

_CHUNK = 4096  # sentences that share a generator; part of what a seed means
_LENGTH_SPREAD = 0.4  # sigma of the lognormal sentence length


@dataclass(frozen=True)
class WorldConfig:
    """The size and the nature of a world.

    `sentences` are those of training and development together, `dev` the development share of them; the test
    sentences come on top, `test` times as many. No pair is in two splits.
    """

    sentences: int = 12_000
    relations: int = 10  # NA included
    noise: float = 0.4  # chance that a sentence about a pair in the knowledge base does not state its relation
    na_share: float = 0.5  # share of the sentences whose pair is NA
    missing: float = 0.02  # share of the NA pairs that are related all the same: facts the knowledge base lacks
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
        _check("bag_size", self.bag_size, 1.0, 1_000.0)
        _check("bag_tail", self.bag_tail, 1.05, 100.0)
        _check("mean_length", self.mean_length, 14, 80)
        _check("vocabulary", self.vocabulary, 100, 1_000_000)
        _check("styles", self.styles, 1, len(STYLES))
        _check("dev", self.dev, 0.0, 0.5)
        _check("test", self.test, 0.0, 1.0)
        if self.pairs is not None:
            _check("pairs", self.pairs, *_pair_range(self))


def demo(seed: int = 0) -> WorldConfig:
    """A world for two minutes on a laptop."""
    return WorldConfig(seed=seed)


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


class World:
    """One made-up world. Cheap to hold: names and pairs are in memory, sentences are written as they are asked for."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self._relations = RELATIONS[: config.relations - 1]
        self.relations: tuple[str, ...] = (NA, *(relation.name for relation in self._relations))
        self.styles: tuple[str, ...] = tuple(style.name for style in STYLES[: config.styles])
        sizes = [_split_size(config, split) for split in range(len(SPLITS))]
        labels, topics = draw_topics(sizes, len(self._relations), numpy_generator(config.seed, "topics"))
        census = take_census(self._relations, topics)
        mint = WordMint(numpy_generator(config.seed, "words"), _real_words())
        naming = numpy_generator(config.seed, "names")
        vocabulary = make_vocabulary(config.vocabulary, mint)
        self.entities: tuple[Entity, ...] = tuple(
            entity for kind, count in census.count.items() for entity in make_entities(kind, count, mint, naming)
        )
        bystanders = {
            kind: list(make_entities(kind, 100 + count // 2, mint, naming)) for kind, count in census.count.items()
        }
        self._pairs = draw_pairs(
            sizes,
            self._relations,
            labels=labels,
            topics=topics,
            census=census,
            noise=config.noise,
            missing=config.missing,
            tail=config.bag_tail,
            generator=numpy_generator(config.seed, "pairs"),
        )
        self._grammar = Grammar(self._relations, STYLES[: config.styles], vocabulary, bystanders, config.seed)

    def facts(self, split: str = "train") -> Iterator[tuple[Entity, str, Entity]]:
        """The triples of one split that the knowledge base knows."""
        return (triple for triple in self._triples(split) if triple[1] != NA)

    def kb(self, path: Path, split: str = "train", *, na: bool = False) -> None:
        """Write a split's facts as a knowledge base that `fedrel align` reads; with `na`, also its NA pairs."""
        with atomic_file(path) as part, part.open("w", encoding="utf-8") as file:
            for head, relation, tail in self._triples(split):
                if na or relation != NA:
                    row = (head.id, "|".join(head.names), relation, tail.id, "|".join(tail.names))
                    file.write("\t".join(row) + "\n")

    def instances(self) -> Iterator[tuple[int, Instance]]:
        """Every sentence with its split (0 train, 1 dev, 2 test), split by split, each in a fixed random order."""
        for split in range(len(SPLITS)):
            for instance in self._split_instances(split):
                yield split, instance

    def documents(self, folder: Path, split: str = "train", *, files: int = 4) -> None:
        """Write a split as raw text, `files` files a style: its sentences in their order, among others, in paragraphs."""
        if folder.exists():
            raise UserError("the folder exists already", file=folder, remedy="choose another or remove it")
        with atomic_folder(folder) as part:
            paths = [[part / f"{style}-{n:02d}.txt" for n in range(files)] for style in self.styles]
            scribes = {
                style: [_Scribe(path, self._grammar, index, self._grammar_seed("document", split, path.name))
                        for path in row]
                for index, (style, row) in enumerate(zip(self.styles, paths, strict=True))
            }  # fmt: skip
            try:
                for number, instance in enumerate(self._split_instances(SPLITS.index(split))):
                    scribes[instance.source][number % files].write(instance.text)
            finally:
                for row in scribes.values():
                    for scribe in row:
                        scribe.close()

    def _grammar_seed(self, *purpose: int | str) -> np.random.Generator:
        return numpy_generator(self.config.seed, *purpose)

    def _triples(self, split: str) -> Iterator[tuple[Entity, str, Entity]]:
        pairs = self._pairs
        for index in np.flatnonzero(pairs.split == SPLITS.index(split)).tolist():
            head, tail = self.entities[pairs.head[index]], self.entities[pairs.tail[index]]
            if pairs.flipped[index]:
                head, tail = tail, head
            yield head, self.relations[pairs.label[index]], tail

    def _split_instances(self, split: int) -> Iterator[Instance]:
        config, pairs = self.config, self._pairs
        mine = np.flatnonzero(pairs.split == split)
        order = np.repeat(mine, pairs.size[mine])
        numpy_generator(config.seed, "order", split).shuffle(order)
        for chunk, start in enumerate(range(0, len(order), _CHUNK)):
            yield from self._chunk(order[start : start + _CHUNK], numpy_generator(config.seed, "text", split, chunk))

    def _chunk(self, order: np.ndarray, generator: np.random.Generator) -> Iterator[Instance]:
        # Every chunk draws for a full one, so that nothing depends on how many sentences follow.
        config, pairs, styles = self.config, self._pairs, self._grammar.styles
        uniforms = generator.random((2, _CHUNK))[:, : len(order)]
        normals = generator.standard_normal(_CHUNK)[: len(order)]
        cdfs = _style_cdfs(styles)
        subject = np.array([TOPICS.index(relation.topic) for relation in self._relations])[pairs.topic[order]]
        style = (uniforms[0][:, None] >= cdfs[subject]).sum(axis=1)
        mean = config.mean_length * np.array([s.length for s in styles]) / np.mean([s.length for s in styles])
        length = mean[style] * np.exp(_LENGTH_SPREAD * normals - _LENGTH_SPREAD**2 / 2)
        related = (pairs.label[order] > 0) | pairs.hidden[order]
        states = related & (uniforms[1] >= pairs.noise[order])
        writer = Writer(self._grammar, generator)
        columns = (order, style, np.round(length), states)
        for pair, s, words, stated in zip(*(column.tolist() for column in columns), strict=True):
            head, tail = self.entities[pairs.head[pair]], self.entities[pairs.tail[pair]]
            label = int(pairs.label[pair])
            sentence = writer.sentence(
                head,
                tail,
                self._relations[pairs.topic[pair]],
                states=stated,
                in_kb=label > 0,
                style=s,
                length=int(min(words, MAX_TOKENS)),
            )
            text = sentence.text
            one = Mention(head.id, text[slice(*sentence.head)], *sentence.head)
            two = Mention(tail.id, text[slice(*sentence.tail)], *sentence.tail)
            if pairs.flipped[pair]:
                one, two = two, one
            yield Instance(
                text,
                one,
                two,
                self.relations[label],
                source=self.styles[s],
                expresses=stated if label else not stated,
                tokens=tuple(tokenise(text)),
            )


class _Scribe:
    """Writes one document: given sentences as they come, chatter between them, a blank line now and then."""

    def __init__(self, path: Path, grammar: Grammar, style: int, generator: np.random.Generator) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._writer, self._style, self._generator = Writer(grammar, generator), style, generator
        self._separator = ""

    def write(self, sentence: str) -> None:
        """Add a sentence, and perhaps one or two about nothing."""
        texts = [sentence]
        for _ in range(int(self._generator.integers(0, 3))):
            texts.append(self._writer.chatter(self._style, 12))
        for text in texts:
            self._file.write(self._separator + text)
            self._separator = "\n\n" if self._generator.random() < 0.2 else " "

    def close(self) -> None:
        """End the document."""
        self._file.write("\n")
        self._file.close()


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} is {value}, expected {low} to {high}", remedy=f"set {name} in that range")


def _counts(config: WorldConfig, sentences: int) -> tuple[int, int]:
    """Sentences and pairs with a fact, of so many sentences."""
    facts = round(sentences * (1 - config.na_share))
    return facts, math.ceil(facts / config.bag_size)


def _pair_range(config: WorldConfig) -> tuple[int, int]:
    facts, fact_pairs = _counts(config, config.sentences)
    rest = config.sentences - facts
    return fact_pairs + min(rest, 1), fact_pairs + rest


def _split_size(config: WorldConfig, split: int) -> SplitSize:
    dev = round(config.sentences * config.dev)
    sentences = (config.sentences - dev, dev, round(config.sentences * config.test))[split]
    facts, fact_pairs = _counts(config, sentences)
    rest = sentences - facts
    if config.pairs is None:
        na_pairs = math.ceil(rest / config.bag_size)
    else:
        all_facts, all_fact_pairs = _counts(config, config.sentences)
        share = rest / max(config.sentences - all_facts, 1)
        na_pairs = min(rest, max(min(rest, 1), round((config.pairs - all_fact_pairs) * share)))
    return SplitSize(facts, fact_pairs, rest, na_pairs)


def _style_cdfs(styles: tuple[object, ...] | list[object]) -> np.ndarray:
    weights = np.array([[style.topics.get(topic, 1.0) for style in styles] for topic in TOPICS])
    return np.cumsum(weights, axis=1)[:, :-1] / weights.sum(axis=1, keepdims=True)


def _real_words() -> set[str]:
    """Every word the templates use, which no invented word may be."""
    from fedrel.data import world_entities, world_frames, world_relations, world_styles

    sources = (world_entities, world_frames, world_relations, world_styles)
    texts = (Path(module.__file__).read_text(encoding="utf-8") for module in sources)
    return {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}
