"""From a config to what a run works with: the corpus and its splits, the partition, the vocabulary, the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import (
    Config,
    DocumentSection,
    PCNNSection,
    TransformerSection,
)
from fedrel.data import partition as partitions
from fedrel.data.divide import held_back, partition
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import Dataset, Progress, dataset
from fedrel.data.sentences import Corpus
from fedrel.data.vectors import Vectors, Vocabulary, packaged_glove, read_vectors, vocabulary_from_corpus
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs
from fedrel.extractors.pcnn.words import WordInputs
from fedrel.extractors.registry import AnyExtractor, extractor
from fedrel.federation.site_data import SiteData
from fedrel.methods.registry import method
from fedrel.runs.case_study import watched_rows

if TYPE_CHECKING:
    from fedrel.tensors.weights import Weights


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Preparation:
    """All that stands before the first round."""

    dataset: Dataset
    site_data: SiteData
    vocabulary: Vocabulary | None  # PCNN's
    vectors: Vectors | None


def prepare(config: Config, progress: Progress | None = None) -> Preparation:
    """Read (or find in the cache) the data, partition it, build the vocabulary."""
    _check_device(config.training.device)
    data = dataset(config.data, progress)
    for name, rows in (("training", data.train), ("dev", data.dev), ("test", data.test)):
        if not len(rows):
            what = "documents" if isinstance(data.text, DocumentCorpus) else "sentences"
            raise UserError(f"the {name} part has no {what}", hint="check the files and fractions in [data]")
    chosen = method(config.method, config.methods)
    if isinstance(data.text, DocumentCorpus) and chosen.test_head != "none":
        problem = f"{config.method} chooses among the sentences of a bag, but the data are documents"
        raise UserError(problem, hint="choose fedavg, fedatt, fedlcc or another method without bags")
    sites, validation = held_back(data.train, config.partition.coordinator, config.seed)
    if chosen.pools_data:
        parts = partitions.single(data.train)
    else:
        parts = partition(config.partition, replace(data, train=sites), config.seed)
    words, vectors = None, None
    inputs: Inputs
    if isinstance(data.text, DocumentCorpus):
        from fedrel.extractors.document.marked_pieces import tokenise as tokenise_documents

        assert isinstance(config.extractor, DocumentSection)
        inputs = tokenise_documents(data.text, config.extractor, progress)
    elif isinstance(config.extractor, TransformerSection):
        from fedrel.extractors.transformer.pieces import tokenise

        inputs = tokenise(data.corpus, config.extractor, progress)
    else:
        assert isinstance(config.extractor, PCNNSection)
        words, vectors = vocabulary(config.extractor, data)
        inputs = WordInputs(data.corpus, words.lookup(data.corpus.words))
    truth_known, watched = False, np.zeros(0, dtype=np.int64)
    if isinstance(data.text, Corpus):
        truth_known = bool((data.text.expresses[data.train[:1]] >= 0).all())
        watched = watched_rows(data.text, data.train, truth_known, config.case_study)
    site_data = SiteData(
        text=data.text,
        inputs=inputs,
        vocabulary_size=len(words) if words else 0,
        partition=parts,
        validation=validation,
        watched=watched,
        truth_known=truth_known,
        words=fixed_words(config.extractor, vectors),
    )
    return Preparation(data, site_data, words, vectors)


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
            hint=f"set extractor.word_dimension to {found}, or name other vectors",
        )
    return Vocabulary(tuple(vectors.words)), vectors


def fixed_words(section: AnyExtractor, vectors: Vectors | None) -> npt.NDArray[np.float32] | None:
    """The table of words that are not trained: every process has to have it, for it does not travel."""
    fixed = isinstance(section, PCNNSection) and not section.train_words
    return vectors.table() if fixed and vectors is not None else None


def with_words(config: Config, ready: Preparation, weights: Weights) -> Weights:
    """A model's weights with the word table, where that was not trained: a saved model is whole."""
    if not isinstance(config.extractor, PCNNSection) or config.extractor.train_words:
        return weights
    from fedrel.extractors.pcnn.network import PCNN

    held, relations = ready.site_data, len(ready.dataset.text.relations)
    model = extractor(config.extractor, held.vocabulary_size, relations, config.seed, held.words)
    assert isinstance(model, PCNN)
    return {**weights, "words.weight": model.words.dense().numpy()}


def _check_device(name: str) -> None:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        problem = f"training.device {name!r} cannot be used: {str(error).splitlines()[0]}"
        raise UserError(problem, hint="'cpu' works everywhere") from error
