"""What a model is asked in the end, and how good its answers are: facts by probability, labels, or documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from fedrel.data.bags import Bags, singles
from fedrel.data.documents import DocumentCorpus
from fedrel.data.sentences import SentenceCorpus
from fedrel.evaluation.classification import Classification
from fedrel.evaluation.document_metrics import Findings, Gold
from fedrel.evaluation.outcome import Outcome
from fedrel.evaluation.ranking import Ranking, rank

if TYPE_CHECKING:
    from fedrel.config.schema import Evaluation
    from fedrel.data.load import Dataset


Ints = npt.NDArray[np.int64]
Score = Callable[[str, Bags], npt.NDArray[np.floating[Any]]]
"""Asks the model: a bag head and bags to their probabilities."""


class Task(Protocol):
    """What is asked about rows of a corpus, and what the answers come to."""

    def evaluate(self, rows: Ints, head: str, score: Score) -> Outcome:
        """How good the model is on these rows; `head` is its method's own bag head."""


def task(section: Evaluation, data: Dataset) -> Task:
    """The task that a config names."""
    if section.task == "documents":
        return Documents(data.corpus.require(DocumentCorpus), data.train)
    sentences = data.corpus.require(SentenceCorpus)
    return Sentences(sentences) if section.task == "classification" else Facts(sentences)


class Facts:
    """Facts about entity pairs, by probability."""

    def __init__(self, corpus: SentenceCorpus) -> None:
        self._corpus = corpus

    def evaluate(self, rows: Ints, head: str, score: Score) -> Ranking:
        """A bag for each pair, and all facts but `NA`, surest first."""
        bags = self._corpus.bags_by_pair(rows)
        pair = np.searchsorted(bags.keys, self._corpus.pair[rows])
        return rank(score(head, bags), np.stack([pair, self._corpus.relation[rows]], axis=1))


class Sentences:
    """Each sentence's likeliest relation."""

    def __init__(self, corpus: SentenceCorpus) -> None:
        self._corpus = corpus

    def evaluate(self, rows: Ints, head: str, score: Score) -> Classification:
        """Each sentence by itself, whatever the bag head."""
        gold = np.asarray(self._corpus.relation[rows], dtype=np.int64)
        scores = score("none", singles(rows, gold, rows))
        return Classification(scores.argmax(1), gold, list(self._corpus.relations), rows)


class Documents:
    """The relations of each document's pairs."""

    def __init__(self, corpus: DocumentCorpus, training: Ints) -> None:
        self._corpus, self._training = corpus, training
        self._known: dict[bytes, Gold] = {}  # by rows: every round asks about the same

    def evaluate(self, rows: Ints, head: str, score: Score) -> Findings:
        """Each document by itself, with all pairs that are not left out."""
        scores = score("none", singles(rows, np.zeros_like(rows), rows))
        if rows.tobytes() not in self._known:
            self._known[rows.tobytes()] = self._gold(rows)
        return Findings.of(scores, self._known[rows.tobytes()], list(self._corpus.relations))

    def _gold(self, rows: Ints) -> Gold:
        corpus, pairs = self._corpus, self._corpus.pairs_of(rows)
        return Gold(
            document=np.searchsorted(corpus.pair_starts, pairs, side="right") - 1,
            facts=corpus.labels(pairs),
            intra=corpus.intra[pairs].astype(np.bool_),
            seen=seen_in_training(corpus, self._training, pairs),
        )


def seen_in_training(corpus: DocumentCorpus, training: Ints, pairs: Ints) -> NDArray[np.bool_]:
    """Which relations of each pair are known from the training documents, [pairs, relations].

    Documents share no entity ids in DocRED, so a fact is known if training states the relation between any two
    mentions of the same names, as in DocRED's own evaluation. Only relations that a pair has can be known of it.
    """
    known: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for relation, heads, tails in _named(corpus, corpus.pairs_of(training)):
        known[relation].update(product(heads, tails))
    seen = np.zeros((len(pairs), len(corpus.relations)), np.bool_)
    sizes = corpus.fact_starts[pairs + 1] - corpus.fact_starts[pairs]
    places = np.repeat(np.arange(len(pairs)), sizes).tolist()
    for place, (relation, heads, tails) in zip(places, _named(corpus, pairs), strict=True):
        seen[place, relation] = not known[relation].isdisjoint(product(heads, tails))
    return seen


def _named(corpus: DocumentCorpus, pairs: Ints) -> Iterator[tuple[int, list[int], list[int]]]:
    """The relation and the head's and tail's names (by number) of each fact of these pairs."""
    documents = np.searchsorted(corpus.pair_starts, pairs, side="right") - 1
    ends = corpus.entity_starts[documents][:, None] + corpus.pairs[pairs]
    for pair, (head, tail) in zip(pairs.tolist(), ends.tolist(), strict=True):
        for relation in corpus.fact_relation[
            corpus.fact_starts[pair] : corpus.fact_starts[pair + 1]
        ].tolist():
            yield relation, _names(corpus, head), _names(corpus, tail)


def _names(corpus: DocumentCorpus, entity: int) -> list[int]:
    part = slice(corpus.mention_starts[entity], corpus.mention_starts[entity + 1])
    names: list[int] = corpus.mention_name[part].tolist()
    return names
