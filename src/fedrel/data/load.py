"""From a config to what a run works with: the corpus and its splits, the partition, the vocabulary, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import (
    DocumentData,
    FileData,
    WorldData,
)
from fedrel.data.cache import cached
from fedrel.data.document_loading import load
from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers import RELATIONS, SOURCED, reader
from fedrel.data.relations import RelationMap, read_relations, relations_of
from fedrel.data.sentences import DEV, TEST, TRAIN, Corpus, Instance
from fedrel.data.splits import sample, split_by_document, split_by_pair, without_duplicates
from fedrel.data.world import World, WorldConfig, relation_names
from fedrel.errors import UserError

if TYPE_CHECKING:
    pass


Progress = Callable[[int], None]

WORLD_VERSION = (
    1  # raised when the generator's text changes, so that no cached corpus is taken for the new one
)


@dataclass(frozen=True)
class Dataset:
    """A corpus and which of its rows are for training, for choosing a model, and for testing."""

    text: Corpus | DocumentCorpus
    train: Ints
    dev: Ints
    test: Ints

    @property
    def corpus(self) -> Corpus:
        """The text as sentences, where it is."""
        assert isinstance(self.text, Corpus)
        return self.text


def dataset(section: WorldData | FileData | DocumentData, progress: Progress | None = None) -> Dataset:
    """The corpus that a config's data section describes, built once and cached."""
    if isinstance(section, DocumentData):
        return Dataset(*read_documents(section, progress))
    if isinstance(section, WorldData):
        return _world(section, progress)
    return _files(section, progress)


def world_config(section: WorldData) -> WorldConfig:
    """The generator's own settings."""
    return WorldConfig(**section.model_dump(exclude={"corpus", "world_seed"}), seed=section.world_seed)


def _world(section: WorldData, progress: Progress | None) -> Dataset:
    config = world_config(section)
    options = {"world": WORLD_VERSION, **asdict(config)}
    corpus = cached([], options, relation_names(config), lambda: World(config).instances(), progress)
    return Dataset(corpus, corpus.rows(TRAIN), corpus.rows(DEV), corpus.rows(TEST))


def _files(section: FileData, progress: Progress | None) -> Dataset:
    splits = {TRAIN: [*section.pool, *section.train], DEV: section.dev, TEST: section.test}
    files = [(split, section.root / path) for split, paths in splits.items() for path in paths]
    options = {"source": section.source_field} if section.format in SOURCED else {}
    read = partial(reader(section.format), **options)

    @cache
    def relations() -> RelationMap:
        if section.relations is not None:
            return read_relations(section.root / section.relations)
        if section.format in RELATIONS:
            return RELATIONS[section.format]
        return relations_of(one for split, path in files if split == TRAIN for one in read(path))

    def instances() -> Iterator[tuple[int, Instance]]:
        for split, path in files:
            for instance in read(path, relations=relations()):
                yield split, instance

    about = {"format": section.format, "splits": [split for split, _ in files], **options}
    fixed = section.relations is not None or section.format in RELATIONS
    known = relations() if fixed else relations
    corpus = cached([path for _, path in files], about, known, instances, progress)
    train = without_duplicates(corpus, corpus.rows(TRAIN))
    if section.pool:
        train, dev, test = split_by_pair(corpus, train, section.fractions, seed=section.split_seed)
    elif section.dev:
        dev, test = corpus.rows(DEV), corpus.rows(TEST)
    else:
        shares = (1 - section.dev_fraction, section.dev_fraction)
        train, dev = split_by_pair(corpus, train, shares, seed=section.split_seed)
        test = corpus.rows(TEST)
    if not section.keep_na:
        train, dev, test = (rows[np.asarray(corpus.relation[rows]) > 0] for rows in (train, dev, test))
    if section.sample is not None:
        train = sample(corpus, train, section.sample, balanced=section.balanced, seed=section.split_seed)
    return Dataset(corpus, train, dev, test)


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def read_documents(
    section: DocumentData, progress: Callable[[int], None] | None = None
) -> tuple[DocumentCorpus, Ints, Ints, Ints]:
    """The corpus that a config's data section describes, and its documents for training, dev and test."""
    splits = {TRAIN: [*section.pool, *section.train], DEV: section.dev, TEST: section.test}
    corpus = load(
        [(split, section.root / path) for split, paths in splits.items() for path in paths],
        section.format,
        options=section.reader_options(),
        relations=read_relations(section.root / section.relations) if section.relations else None,
        not_include=[section.root / path for path in section.not_include],
        mesh=section.root / section.mesh if section.mesh else None,
        progress=progress,
    )
    if len(corpus.relations) < 2:
        raise UserError("the training documents state no relation", hint="check the files in [data]")
    train = corpus.rows(TRAIN)
    if section.pool:
        train, dev, test = split_by_document(train, section.fractions, seed=section.split_seed)
        return corpus, train, dev, test
    if section.dev:
        return corpus, train, corpus.rows(DEV), corpus.rows(TEST)
    shares = (1 - section.dev_fraction, section.dev_fraction)
    train, dev = split_by_document(train, shares, seed=section.split_seed)
    return corpus, train, dev, corpus.rows(TEST)
