"""Which words does a site's text have?

A row of a trained word table moves only if its word occurs. Where sites send the changed rows, their numbers are
the answer; in a whole table, as in a sum, the rows that moved beyond decay are. Where words are not trained, the
filters of a PCNN tell a little: their gradient is a sum of the vectors of the words that they respond to, so that
an update reaches farther in the direction of words that occur than updates of shadow sites do.

Words that most sites have are no news. So only telling words count: those that at most one shadow site in ten has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.leaks.crossings import AttackedRound, View
from fedrel.tensors.weights import Rows, Weights

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WORDS, FILTERS = "words.weight", "filters"
TELLING = 0.1  # the largest share of shadow sites that have a telling word
_LEAST = 1e-12


@dataclass(frozen=True)
class Vocabulary:
    """What the attacker knows of words: the published table, and which words its shadow sites have."""

    size: int
    vectors: npt.NDArray[np.float32] | None
    """Of words that are not trained, [V, d]."""
    of_site: Callable[[int], Ints]
    """The rows of the words that a site has; the attacker may ask for its shadow sites only."""


@dataclass(frozen=True)
class FoundWords:
    """Telling words of one site: how many were named, how many of them are right, how many there are."""

    named: int
    right: int
    there: int
    by_chance: float
    """How many would be right if as many telling words were named at random."""


def named_words(round_: AttackedRound, known: Vocabulary) -> list[FoundWords] | None:
    """The words that each view names, against those of each of its sites; None if no weights of words crossed."""
    shadow_words = [[known.of_site(site) for site in view.sites] for view in round_.shadows]
    own = [words for several in shadow_words for words in several]
    having = np.bincount(np.concatenate(own), minlength=known.size) / len(own)
    telling = having <= TELLING
    cohort = [int(telling[np.unique(np.concatenate(several))].sum()) for several in shadow_words]
    expected = int(np.mean(cohort))
    candidates = np.flatnonzero(telling)
    vectors = None if known.vectors is None else directions(known.vectors[candidates])
    others = None if vectors is None else _all_responses(round_, round_.shadows, vectors)
    found = []
    for view in round_.views:
        scores = word_scores(view, round_.base, candidates, vectors, others)
        if scores is None:
            return None
        listed = np.isinf(scores)
        best = np.argsort(-scores, kind="stable")[:expected]
        named = candidates[listed] if listed.any() else candidates[best]
        for site in view.sites:
            true = known.of_site(site)
            true = true[telling[true]]
            right = len(np.intersect1d(named, true))
            chance = len(named) * len(true) / max(len(candidates), 1)
            found.append(FoundWords(len(named), right, len(true), chance))
    return found


def word_scores(
    view: View,
    base: Weights,
    words: Ints,
    vectors: npt.NDArray[np.float32] | None,
    others: Floats | None,
) -> Floats | None:
    """How much speaks for each word; infinite for what the update itself lists. None if nothing can.

    `vectors` are the directions of words that are not trained, `others` how far shadow sites' filters went there.
    """
    if view.update is None or view.weights is None:
        return None
    table = view.update.get(WORDS)
    if isinstance(table, Rows):
        return np.where(np.isin(words, table.index), np.inf, 0.0)
    if table is not None:
        return moved_rows(base[WORDS], table)[words]
    if vectors is None or others is None:
        return None
    return standardised(responses(base, view.weights, vectors), others)


def moved_rows(base: npt.NDArray[np.float32], after: npt.NDArray[np.float32]) -> Floats:
    """How far each row of a table moved, beyond the decay that all rows share."""
    base, after = base.astype(np.float64), after.astype(np.float64)
    length = np.square(base).sum(1)
    kept = length > _LEAST
    decay = np.median((base[kept] * after[kept]).sum(1) / length[kept]) if kept.any() else 1.0
    moved: Floats = np.linalg.norm(after - decay * base, axis=1)
    return moved


def directions(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Vectors of length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: npt.NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(_LEAST))
    return found


def responses(base: Weights, after: Weights, vectors: npt.NDArray[np.float32]) -> Floats:
    """How far filters moved in the direction of each word's vector, over all places of their window."""
    step = (after[FILTERS] - base[FILTERS]).astype(np.float64)
    size = vectors.shape[1]
    width = (
        size + base["head_positions"].shape[1] + base["tail_positions"].shape[1]
    )  # of a token in the window
    blocks = step.reshape(-1, width)[:, :size]
    energy = (blocks.T @ blocks).astype(np.float32)
    found: Floats = np.einsum("wd,wd->w", vectors @ energy, vectors).astype(np.float64)
    return found


def _all_responses(
    round_: AttackedRound, several: Sequence[View], vectors: npt.NDArray[np.float32]
) -> Floats | None:
    """The same of several sites; None if no filters crossed."""
    weights = [view.weights for view in several if view.weights is not None and FILTERS in view.weights]
    return np.stack([responses(round_.base, one, vectors) for one in weights]) if weights else None


def standardised(mine: Floats, others: Floats) -> Floats:
    """In standard deviations from the mean of the shadow sites'."""
    scale = mine.sum() / np.maximum(others.sum(1), _LEAST)  # updates differ in length
    others = others * scale[:, None]
    found: Floats = (mine - others.mean(0)) / np.maximum(others.std(0), _LEAST)
    return found


def precision_and_recall(found: Sequence[FoundWords]) -> tuple[float, float, float]:
    """Of all sites together: precision, recall, and the precision of guessing."""
    named, right, there = (sum(getattr(one, what) for one in found) for what in ("named", "right", "there"))
    chance = sum(one.by_chance for one in found)
    return right / max(named, 1), right / max(there, 1), chance / max(named, 1)
