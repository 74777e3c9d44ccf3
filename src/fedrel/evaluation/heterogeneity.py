"""How much sites differ: the distance of their labels, FedCMC's d(k,c) of class vectors and its observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def label_distances(counts: NDArray[np.integer]) -> Floats:
    """How far each site's labels are from those of all sites together; `counts` is [sites, relations].

    The earth mover's distance as Zhao et al. (2018) write it: sum over c of |p_k(c) - p(c)|, from 0 (as the whole)
    towards 2 (nothing in common). A site without data has none: NaN.
    """
    sizes = counts.sum(axis=1, keepdims=True)
    own = np.divide(counts, sizes, out=np.full(counts.shape, np.nan), where=sizes > 0)
    distances: Floats = np.abs(own - counts.sum(axis=0) / max(counts.sum(), 1)).sum(axis=1)
    return distances


def class_distances(classifier: NDArray[np.floating]) -> Floats:
    """d(k,c) of FedCMC's Definition 1: the mean cosine similarity of class vector c to the site's other ones.

    `classifier` is [relations, dimension]; the answer [relations]. The name is the paper's letter: a *small* d
    is a vector that stands apart. A vector of zeros has no direction and is similar to none (0). Of two classes
    the two values are one and the same number, so d can tell sites apart then, but not classes.
    """
    vectors = np.asarray(classifier, np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    similar = units @ units.T
    np.fill_diagonal(similar, 0)
    means: Floats = similar.sum(axis=1) / max(len(vectors) - 1, 1)
    return means


@dataclass(frozen=True, slots=True)
class Observations:
    """FedCMC's three observations, each in one number a round.

    The correlations are Spearman's: -1 is what the paper sees, 0 nothing, 1 the opposite, NaN where there is
    nothing to rank.
    """

    own: Floats  # 1: over a site's classes, n(k,c) against d(k,c); the mean of the sites
    whole: Floats  # 2: over the classes, N(c) against d(c)
    gap: Floats  # 2: the mean of |d(k,c) - d(c)|
    closing: float  # 2: the round's number against its gap
    across: Floats  # 3: over a class's sites, n(k,c) against d(k,c); the mean of the classes


def observe(distances: Floats, counts: NDArray[np.integer]) -> Observations:
    """Check the observations on d(k,c), [rounds, sites, relations], with n(k,c), [sites, relations].

    Sites that were not active in a round are NaN there. Relations that no site has are left out.
    """
    present = counts.sum(axis=0) > 0
    distances, counts = distances[:, :, present], counts[:, present]
    gap = np.array([_mean(np.abs(one - global_distances(one, counts))) for one in distances])
    return Observations(
        own=np.array([_mean(within_sites(one, counts)) for one in distances]),
        whole=np.array([_whole(one, counts) for one in distances]),
        gap=gap,
        closing=spearman(np.arange(len(gap)), gap),
        across=np.array([_mean(across_sites(one, counts)) for one in distances]),
    )


def global_distances(distances: Floats, counts: NDArray[np.integer]) -> Floats:
    """d(c) of Definition 2 in one round, [relations]: the mean of the active sites, weighted by their data.

    Eq. 11 divides by K once more, though its weights N_k/N add up to one already. We do not, or no d(k,c)
    could come near d(c), as the second observation says they do.
    """
    active = ~np.isnan(distances).any(axis=1)
    weights = np.where(active, counts.sum(axis=1), 0)
    if not weights.any():
        return np.full(distances.shape[1], np.nan)
    mean: Floats = weights[active] @ distances[active] / weights.sum()
    return mean


def within_sites(distances: Floats, counts: NDArray[np.integer]) -> Floats:
    """Observation 1 in one round, [sites]: does a class of which the site has more stand further apart?"""
    return np.array([spearman(n, d) for n, d in zip(counts, distances, strict=True)])


def across_sites(distances: Floats, counts: NDArray[np.integer]) -> Floats:
    """Observation 3 in one round, [relations]: does a class stand further apart at the sites that have more?"""
    active = ~np.isnan(distances).any(axis=1)
    return within_sites(distances[active].T, counts[active].T)


def spearman(one: NDArray[np.number], other: NDArray[np.number]) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks.

    NaN where there is a NaN, or where one side does not vary: then there is no order to agree on.

    >>> spearman(np.array([1, 2, 3, 4]), np.array([10, 30, 20, 40]))
    0.8
    """
    if np.isnan(one).any() or np.isnan(other).any() or len(one) < 2:
        return float("nan")
    first, second = (ranks - ranks.mean() for ranks in (_ranks(one), _ranks(other)))
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale else float("nan")


def _ranks(values: NDArray[np.number]) -> Floats:
    """Ranks from 1, averaged over ties."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    last = times.cumsum()
    ranks: Floats = (last - (times - 1) / 2)[place]
    return ranks


def _whole(distances: Floats, counts: NDArray[np.integer]) -> float:
    return spearman(counts.sum(axis=0), global_distances(distances, counts))


def _mean(values: Floats) -> float:
    """The mean of the values that are not NaN."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else float("nan")
