"""The built-in corpus: a small made-up world, as large and as noisy as one asks for.

Typed entities with aliases, a knowledge base of facts between them, and text in several writing styles that
mentions the pairs, where it is known of every sentence whether it states the relation it is labelled with.
Nothing is copied from anywhere; the same config gives the same bytes.

>>> world = World(WorldConfig(sentences=1000, seed=3))
>>> split, instance = next(world.instances())
>>> instance.text[instance.head.start : instance.head.end] == instance.head.name
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import tokenise
from fedrel.data.world.catalogue import RELATIONS
from fedrel.data.world.entities import Entity, WordMint, make_entities
from fedrel.data.world.filler import make_vocabulary
from fedrel.data.world.grammar import Grammar, real_words
from fedrel.data.world.knowledge import draw_pairs, draw_topics, take_census
from fedrel.data.world.prose import MAX_TOKENS, Scribe, Writer
from fedrel.data.world.settings import WorldConfig, split_sizes
from fedrel.data.world.styles import STYLES, style_cdf
from fedrel.errors import UserError, nearest
from fedrel.files import atomic_file, atomic_folder
from fedrel.seeding import numpy_generator

SPLITS = ("train", "dev", "test")
_CHUNK = 8192  # sentences that share a generator; part of what a seed means
_LENGTH_SPREAD = 0.4  # sigma of the lognormal sentence length


def relation_names(config: WorldConfig) -> tuple[str, ...]:
    """A world's relations, `NA` first: known before it is made, which takes seconds for a large one."""
    return (NA, *(relation.name for relation in RELATIONS[: config.relations - 1]))


class World:
    """One made-up world. Names and pairs are in memory; sentences are written as they are asked for."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self._relations, styles = RELATIONS[: config.relations - 1], STYLES[: config.styles]
        self.relations = relation_names(config)
        self.styles: tuple[str, ...] = tuple(style.name for style in styles)
        sizes = split_sizes(config)
        labels, topics = draw_topics(sizes, len(self._relations), numpy_generator(config.seed, "topics"))
        census = take_census(self._relations, topics)
        mint = WordMint(numpy_generator(config.seed, "words"), real_words())
        naming = numpy_generator(config.seed, "names")
        self.entities: tuple[Entity, ...] = tuple(
            entity
            for kind, count in census.count.items()
            for entity in make_entities(kind, count, mint, naming)
        )
        bystanders = {
            kind: list(make_entities(kind, 100 + count // 2, mint, naming))
            for kind, count in census.count.items()
        }
        self._pairs = draw_pairs(
            sizes,
            self._relations,
            labels=labels,
            topics=topics,
            census=census,
            noise=config.noise,
            popularity=config.popularity,
            missing=config.missing,
            tail=config.bag_tail,
            generator=numpy_generator(config.seed, "pairs"),
        )
        vocabulary = make_vocabulary(config.vocabulary, mint)
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

        `expresses` says whether the label is right of this sentence: the sentence states the relation or, of an
        NA pair, states none.
        """
        for split in range(len(SPLITS)):
            for instance in self._split(split):
                yield split, instance

    def documents(self, folder: Path, split: str = "train", *, files: int = 4) -> None:
        """Write a split as raw text, `files` documents a style, its sentences among others that mention no pair."""
        if folder.exists():
            raise UserError(
                "the folder exists already", file=folder, hint="choose another, or remove it first"
            )
        number, by_id = _split_number(split), {entity.id: entity for entity in self.entities}
        with atomic_folder(folder) as part, ExitStack() as open_files:
            scribes = {}
            for index, style in enumerate(self.styles):
                for file in range(files):
                    name = f"{style}-{file:02d}"
                    generator = numpy_generator(self.config.seed, "document", split, name)
                    scribe = Scribe(part / f"{name}.txt", self._grammar, index, generator)
                    scribes[style, file] = open_files.enter_context(scribe)
            for position, instance in enumerate(self._split(number)):
                scribes[instance.source, position % files].write(instance.text, by_id[instance.head.id])

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
        """The sentences about the pairs in `order`: styles, lengths and truth in one draw, then the text."""
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
        writer = Writer(self._grammar, generator)
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
                sentence = writer.statement(head, tail, relation, style=s, length=words)
            else:
                sentence = writer.mention(head, tail, relation if label else None, style=s, length=words)
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
