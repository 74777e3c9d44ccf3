"""Runs in which every site has a model of its own: who scores what, and which round each site keeps.

A model scores only what is at its own site. Each site keeps its model of the round that is best on its own dev
part; one whose dev part has nothing to find keeps the last round's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, ragged
from fedrel.data.documents import DocumentCorpus
from fedrel.data.partition import mirrored

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.evaluation.tasks import Task
    from fedrel.federation.coordinator import Engine, Federation
    from fedrel.runs.prepare import Ints, Preparation
    from fedrel.tensors.weights import Weights

_KEPT, _BEST = "kept", "best"  # in the coordinator's state: the models that sites keep, and their dev metrics


class OwnModels:
    """The models of all sites, in the coordinator's state, so that checkpoints have them too."""

    def __init__(self, config: Config, ready: Preparation, engine: Engine, fed: Federation) -> None:
        self._fed, self._engine = fed, engine
        self._measure = config.evaluation.measure
        self._corpus = ready.dataset.corpus
        self._site_of = np.full(len(self._corpus), -1, np.int64)
        parts = ready.site_data.partition
        self._dev = mirrored(config.partition, parts, self._corpus, ready.dataset.dev, config.seed)
        test = mirrored(config.partition, parts, self._corpus, ready.dataset.test, config.seed)
        for share in (self._dev, test):
            self._site_of[share.order] = np.repeat(np.arange(share.sites), share.sizes)

    def kept(self, site: int) -> Weights:
        """The model that a site keeps; before its first evaluation, the one that it has."""
        return self._fed.model_of(site, _KEPT) if _BEST in self._fed.state else self._fed.model_of(site)

    def dev(self, site: int) -> Ints:
        """The rows of a site's own dev part."""
        return self._dev.rows(site)

    def choose(self, task: Task, head: str) -> None:
        """After a round: sites keep their models where those are better on dev than what they kept before."""
        best = self._fed.state.get(_BEST, np.full(self._dev.sites, -1, np.float32)).copy()
        for site in range(self._dev.sites):
            rows, model = self._dev.rows(site), self._fed.model_of(site)
            if len(rows) and self._corpus.fact_count(rows):
                outcome = task.choose(rows, head, partial(self._engine.score, model))
                metric = np.float32(outcome.metrics()[self._measure])
                if metric <= best[site]:
                    continue
                best[site] = metric
            self._fed.keep_model(site, model, _KEPT)
        self._fed.state[_BEST] = best

    def score(self, head: str, bags: Bags) -> npt.NDArray[np.floating[Any]]:
        """Each relation's probability for each bag, [B, R], or for each pair of the documents.

        A bag whose sentences are at several sites is read by each site's model, and the highest probability counts.
        """
        answers = self._answers(bags)
        starts = answers.cumsum() - answers
        bag_of = np.repeat(np.arange(len(bags)), np.diff(bags.bounds))
        sites = self._site_of[bags.rows]
        scores = np.zeros((answers.sum(), 0), np.float32)
        for site in np.unique(sites):
            rows = bags.rows[sites == site]
            which, sizes = np.unique(bag_of[sites == site], return_counts=True)
            own = Bags(rows, np.append(0, sizes.cumsum()), bags.labels[which], bags.keys[which])
            found = self._engine.score(self.kept(int(site)), head, own)
            if not scores.size:
                scores = np.zeros((len(scores), found.shape[1]), found.dtype)
            places = ragged(starts[which], answers[which])
            scores[places] = np.maximum(scores[places], found)
        return scores

    def _answers(self, bags: Bags) -> Ints:
        """How many rows of probabilities a model answers with for each bag: a document has one for each pair."""
        if not isinstance(self._corpus, DocumentCorpus):
            return np.ones(len(bags), np.int64)
        return np.array(
            [len(self._corpus.pairs_of(bags.rows[n : n + 1])) for n in range(len(bags))], np.int64
        )
