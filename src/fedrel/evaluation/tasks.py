"""What a model is asked in the end, and how good its answers are: facts by probability, labels, or documents.

The threshold, the probability from which on a model's facts are believed, is the one with the best F1 on the
development set.
"""

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
from fedrel.data.relations import NA
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus
from fedrel.errors import UserError
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

UNTUNED = 0.5  # where there is nothing to tune by


class Task(Protocol):
    """What is asked about rows of a corpus, and what the answers come to."""

    def evaluate(self, rows: Ints, head: str, score: Score, threshold: float | None = None) -> Outcome:
        """How good the model is on these rows; `head` is its method's own bag head.

        `threshold` is what `choose` found on dev; without one, the task's own counts.
        """

    def choose(self, rows: Ints, head: str, score: Score) -> Outcome:
        """The same on the rows of dev, at the threshold that is best there, if the config asks for one."""


def task(section: Evaluation, data: Dataset) -> Task:
    """The task that a config names."""
    tune = section.tune_threshold
    if section.task == "documents":
        return Documents(data.corpus.require(DocumentCorpus), data.train, tune=tune)
    sentences = data.corpus.require(SentenceCorpus)
    return Sentences(sentences, tune=tune) if section.task == "classification" else Facts(sentences)


class Facts:
    """Facts about entity pairs, by probability."""

    def __init__(self, corpus: SentenceCorpus) -> None:
        self._corpus = corpus

    def evaluate(self, rows: Ints, head: str, score: Score, threshold: float | None = None) -> Ranking:
        """A bag for each pair, and all facts but `NA`, surest first; a ranking has no threshold."""
        bags = self._corpus.bags_by_pair(rows)
        pair = np.searchsorted(bags.keys, self._corpus.pair[rows])
        facts = np.stack([pair, self._corpus.relation[rows]], axis=1)
        return rank(score(head, bags), facts, na=0 if self._corpus.has_na else None)

    def choose(self, rows: Ints, head: str, score: Score) -> Ranking:
        """The same: there is nothing to choose."""
        return self.evaluate(rows, head, score)


class Sentences:
    """Each sentence's likeliest relation; with `tune`, the one relation from a threshold on."""

    def __init__(self, corpus: SentenceCorpus, *, tune: bool = False) -> None:
        self._corpus, self._tune = corpus, tune
        if tune and not (corpus.has_na and len(corpus.relations) == 2):
            problem = (
                f"a threshold is tuned for one relation beside {NA}, these data have {len(corpus.relations)}"
            )
            raise UserError(problem, hint="leave out evaluation.tune_threshold")

    def evaluate(self, rows: Ints, head: str, score: Score, threshold: float | None = None) -> Classification:
        """Each sentence by itself, whatever the bag head."""
        gold, scores = self._asked(rows, score)
        return self._outcome(rows, gold, scores, threshold)

    def choose(self, rows: Ints, head: str, score: Score) -> Classification:
        """The same, at the threshold that is best for these."""
        gold, scores = self._asked(rows, score)
        return self._outcome(rows, gold, scores, _best(scores[:, 1:], gold[:, None] > 0, self._tune))

    def _asked(self, rows: Ints, score: Score) -> tuple[Ints, npt.NDArray[np.floating[Any]]]:
        gold = np.asarray(self._corpus.relation[rows], dtype=np.int64)
        return gold, score("none", singles(rows, gold, rows))

    def _outcome(
        self, rows: Ints, gold: Ints, scores: npt.NDArray[np.floating[Any]], threshold: float | None
    ) -> Classification:
        likeliest = scores.argmax(1) if threshold is None else (scores[:, 1] >= threshold).astype(np.int64)
        return Classification(likeliest, gold, list(self._corpus.relations), rows, threshold)


class Documents:
    """The relations of each document's pairs."""

    def __init__(self, corpus: DocumentCorpus, training: Ints, *, tune: bool = False) -> None:
        self._corpus, self._training, self._tune = corpus, training, tune
        self._known: dict[bytes, Gold] = {}  # by rows: every round asks about the same

    def evaluate(self, rows: Ints, head: str, score: Score, threshold: float | None = None) -> Findings:
        """Each document by itself, with all pairs that are not left out."""
        gold, scores = self._asked(rows, score)
        return Findings.of(scores, gold, list(self._corpus.relations), threshold)

    def choose(self, rows: Ints, head: str, score: Score) -> Findings:
        """The same, at the threshold that is best for these."""
        gold, scores = self._asked(rows, score)
        best = _best(scores, gold.facts[:, 1:], self._tune)
        return Findings.of(scores, gold, list(self._corpus.relations), best)

    def _asked(self, rows: Ints, score: Score) -> tuple[Gold, npt.NDArray[np.floating[Any]]]:
        scores = score("none", singles(rows, np.zeros_like(rows), rows))
        if rows.tobytes() not in self._known:
            self._known[rows.tobytes()] = self._gold(rows)
        return self._known[rows.tobytes()], scores

    def _gold(self, rows: Ints) -> Gold:
        corpus, pairs = self._corpus, self._corpus.pairs_of(rows)
        return Gold(
            document=np.searchsorted(corpus.pair_starts, pairs, side="right") - 1,
            facts=corpus.labels(pairs),
            intra=corpus.intra[pairs].astype(np.bool_),
            seen=seen_in_training(corpus, self._training, pairs),
        )


def _best(probabilities: npt.NDArray[np.floating[Any]], facts: NDArray[np.bool_], tune: bool) -> float | None:
    return best_threshold(probabilities, facts) if tune else None


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


def tuned_threshold(corpus: Corpus, rows: Ints, head: str, score: Score) -> float:
    """The best threshold for the facts that these rows state, asked as `predict` asks: by pair, or by document."""
    if not len(rows):
        return UNTUNED
    if isinstance(corpus, DocumentCorpus):
        facts = corpus.labels(corpus.pairs_of(rows))[:, 1:]
        return best_threshold(score("none", singles(rows, np.zeros_like(rows), rows)), facts)
    sentences = corpus.require(SentenceCorpus)
    bags = sentences.bags_by_pair(rows)
    facts = np.zeros((len(bags), len(corpus.relations)), np.bool_)
    facts[np.searchsorted(bags.keys, sentences.pair[rows]), sentences.relation[rows]] = True
    first = int(corpus.has_na)
    return best_threshold(score(head, bags)[:, first:], facts[:, first:])


def best_threshold(probabilities: NDArray[np.floating[Any]], facts: NDArray[np.bool_]) -> float:
    """The threshold with the highest F1 of the guesses at or above it, half-way to the next lower probability.

    Of equally good ones the highest counts, with the fewest guesses. Without a fact there is nothing to tune by.

    >>> best_threshold(np.array([[0.9, 0.7, 0.5, 0.2]]), np.array([[True, False, True, False]]))
    0.35
    """
    if not facts.any():
        return UNTUNED
    order = np.argsort(-probabilities.ravel(), kind="stable")
    values, right = probabilities.ravel()[order].astype(np.float64), facts.ravel()[order].cumsum()
    last = np.append(values[1:] < values[:-1], True)  # a threshold cannot part equal probabilities
    f1 = np.where(last, 2 * right / (np.arange(1, len(values) + 1) + right[-1]), -1.0)
    best = int(f1.argmax())
    lower = values[best + 1] if best + 1 < len(values) else 0.0
    middle = round(float(values[best] + lower) / 2, 6)
    fits = lower < probabilities.dtype.type(middle) <= values[best]  # as it is compared with them
    return middle if fits else float(values[best])


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
