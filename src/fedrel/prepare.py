"""From a config to what a run works with: the corpus and its splits, the partition, the vocabulary, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.casestudy import watched_rows
from fedrel.config import (
    Config,
    FileData,
    PartitionSection,
    PCNNSection,
    TransformerSection,
    WorldData,
)
from fedrel.data import partition as partitions
from fedrel.data import skew
from fedrel.data.cache import cached
from fedrel.data.columns import DEV, TEST, TRAIN, Corpus
from fedrel.data.documents.columns import DocumentCorpus
from fedrel.data.instances import Instance
from fedrel.data.readers import RELATIONS, SOURCED, reader
from fedrel.data.relations import RelationMap, read_relations, relations_of
from fedrel.data.splits import sample, split_by_pair, without_duplicates
from fedrel.data.vectors import Vectors, Vocabulary, packaged_glove, read_vectors, vocabulary_from_corpus
from fedrel.data.world import World, WorldConfig, relation_names
from fedrel.document_config import DocumentData, DocumentSection
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs, WordInputs
from fedrel.federation.desk import Desk
from fedrel.federation.materials import Materials
from fedrel.federation.states import SiteStates
from fedrel.methods.base import method
from fedrel.prepare_documents import pair_counts, partition_by_entropy, read_documents
from fedrel.seeding import numpy_generator, torch_generator

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor
    from fedrel.federation.weights import Weights

AnyExtractor = PCNNSection | TransformerSection | DocumentSection
Ints = npt.NDArray[np.int64]
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


@dataclass(frozen=True)
class Preparation:
    """All that stands before the first round."""

    dataset: Dataset
    materials: Materials
    vocabulary: Vocabulary | None  # PCNN's
    vectors: Vectors | None


def prepare(config: Config, progress: Progress | None = None) -> Preparation:
    """Read (or find in the cache) the data, partition it, build the vocabulary."""
    _check_device(config.training.device)
    data = dataset(config.data, progress)
    for name, rows in (("training", data.train), ("dev", data.dev), ("test", data.test)):
        if not len(rows):
            what = "documents" if isinstance(data.text, DocumentCorpus) else "sentences"
            raise UserError(
                f"the {name} part has no {what}", remedy="check the files and fractions in [data]"
            )
    chosen = method(config.method, config.methods)
    if isinstance(data.text, DocumentCorpus) and chosen.test_head != "none":
        problem = f"{config.method} chooses among the sentences of a bag, but the data are documents"
        raise UserError(problem, remedy="choose fedavg, fedatt, fedlcc or another method without bags")
    sites, validation = held_back(data.train, config.partition.coordinator, config.seed)
    if chosen.pools_data:
        parts = partitions.single(data.train)
    else:
        parts = partition(config.partition, replace(data, train=sites), config.seed)
    words, vectors = None, None
    inputs: Inputs
    if isinstance(data.text, DocumentCorpus):
        from fedrel.extractors.document_pieces import tokenise as tokenise_documents

        assert isinstance(config.extractor, DocumentSection)
        inputs = tokenise_documents(data.text, config.extractor, progress)
    elif isinstance(config.extractor, TransformerSection):
        from fedrel.extractors.pieces import tokenise

        inputs = tokenise(data.corpus, config.extractor, progress)
    else:
        assert isinstance(config.extractor, PCNNSection)
        words, vectors = vocabulary(config.extractor, data)
        inputs = WordInputs(data.corpus, words.lookup(data.corpus.words))
    truth_known, watched = False, np.zeros(0, dtype=np.int64)
    if isinstance(data.text, Corpus):
        truth_known = bool((data.text.expresses[data.train[:1]] >= 0).all())
        watched = watched_rows(data.text, data.train, truth_known, config.case_study)
    materials = Materials(
        text=data.text,
        inputs=inputs,
        vocabulary_size=len(words) if words else 0,
        partition=parts,
        validation=validation,
        watched=watched,
        truth_known=truth_known,
        words=fixed_words(config.extractor, vectors),
    )
    return Preparation(data, materials, words, vectors)


def dataset(section: WorldData | FileData | DocumentData, progress: Progress | None = None) -> Dataset:
    """The corpus that a config's data section describes, built once and cached."""
    if isinstance(section, DocumentData):
        return Dataset(*read_documents(section, progress))
    if isinstance(section, WorldData):
        return _world(section, progress)
    return _files(section, progress)


def partition(section: PartitionSection, data: Dataset, seed: int) -> partitions.Partition:
    """Who holds which training rows."""
    if section.kind == "iid":
        return partitions.iid(data.train, section.sites, seed)
    if section.kind == "quantity":
        return skew.quantity(data.train, section.sites, section.alpha, seed, min_size=section.min_size)
    if isinstance(data.text, DocumentCorpus):
        return partition_by_entropy(section, data.text, data.train)
    return _partition_sentences(section, data, seed)


def _partition_sentences(section: PartitionSection, data: Dataset, seed: int) -> partitions.Partition:
    """By what only sentences have: a source, a line in a file, one relation."""
    if section.kind == "source":
        return partitions.by_source(data.corpus, data.train)
    if section.kind == "file":
        if section.file is None:
            raise UserError("partition.kind is 'file', but partition.file is not given")
        return partitions.from_file(section.file, data.corpus, data.train)
    labels = data.corpus.relation[data.train]
    if section.kind == "shards":
        return skew.shards(data.train, labels, section.sites, section.shards_per_site, seed)
    return skew.dirichlet(data.train, labels, section.sites, section.alpha, seed, min_size=section.min_size)


def label_counts(parts: partitions.Partition, text: Corpus | DocumentCorpus) -> Ints:
    """n(k,c): how many sentences, or pairs, of each relation each site holds, [sites, relations]."""
    return pair_counts(parts, text) if isinstance(text, DocumentCorpus) else parts.label_counts(text)


def vocabulary(section: PCNNSection, data: Dataset) -> tuple[Vocabulary, Vectors | None]:
    """The model's words, and their vectors where they come with some."""
    if section.vectors == "corpus":
        return vocabulary_from_corpus(data.corpus, data.train, section.min_count), None
    vectors = packaged_glove() if section.vectors == "glove" else read_vectors(Path(section.vectors))
    found = vectors.matrix.shape[1]
    if found != section.word_dimension:
        raise UserError(
            f"the vectors have {found} dimensions, but extractor.word_dimension is {section.word_dimension}",
            file=section.vectors,
            remedy=f"set extractor.word_dimension to {found}, or name other vectors",
        )
    return Vocabulary(tuple(vectors.words)), vectors


def fixed_words(section: AnyExtractor, vectors: Vectors | None) -> npt.NDArray[np.float32] | None:
    """The table of words that are not trained: every process has to have it, for it does not travel."""
    fixed = isinstance(section, PCNNSection) and not section.train_words
    return vectors.table() if fixed and vectors is not None else None


def held_back(rows: Ints, share: float, seed: int) -> tuple[Ints, Ints]:
    """The rows for the sites, and a random share for the coordinator, each in their order."""
    held = numpy_generator(seed, "coordinator").permutation(len(rows)) < round(share * len(rows))
    return rows[~held], rows[held]


def extractor(
    section: AnyExtractor,
    vocabulary_size: int,
    relations: int,
    seed: int,
    vectors: npt.NDArray[np.float32] | None = None,
) -> Extractor:
    """A new model, with initial weights drawn from the seed; `vectors` is PCNN's first word table."""
    import torch

    generator = torch_generator(seed, "initial weights")
    if isinstance(section, DocumentSection):
        from fedrel.extractors.document import document_transformer

        return document_transformer(section, relations, generator)
    if isinstance(section, TransformerSection):
        from fedrel.extractors.transformer import sentence_transformer

        return sentence_transformer(section, relations, generator)
    from fedrel.extractors.pcnn import PCNN

    return PCNN(
        vocabulary_size,
        relations,
        word_dimension=section.word_dimension,
        position_dimension=section.position_dimension,
        filters=section.filters,
        window=section.window,
        max_length=section.max_length,
        dropout=section.dropout,
        vectors=None if vectors is None else torch.tensor(vectors),
        train_words=section.train_words,
        bias=section.bias,
        generator=generator,
    )


def with_words(config: Config, ready: Preparation, weights: Weights) -> Weights:
    """A model's weights with the word table, where that was not trained: a saved model is whole."""
    if not isinstance(config.extractor, PCNNSection) or config.extractor.train_words:
        return weights
    from fedrel.extractors.pcnn import PCNN

    held, relations = ready.materials, len(ready.dataset.text.relations)
    model = extractor(config.extractor, held.vocabulary_size, relations, config.seed, held.words)
    assert isinstance(model, PCNN)
    return {**weights, "words.weight": model.words.dense().numpy()}


def desk(config: Config, materials: Materials, states: Path, triple_key: bytes | None = None) -> Desk:
    """A place to work for a process of this run; its model's weights arrive with the first question.

    `states` is the folder where sites keep what they remember, `triple_key` what real sites share.
    """

    def model() -> Extractor:
        relations = len(materials.text.relations)
        size = materials.vocabulary_size
        new = extractor(config.extractor, size, relations, config.seed, materials.words)
        return new.to(config.training.device)

    return Desk(
        materials,
        model,
        method(config.method, config.methods),
        config.training,
        config.seed,
        SiteStates(states, config.digest()),
        triple_key,
    )


def _check_device(name: str) -> None:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        problem = f"training.device {name!r} cannot be used: {str(error).splitlines()[0]}"
        raise UserError(problem, remedy="'cpu' works everywhere") from error


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
