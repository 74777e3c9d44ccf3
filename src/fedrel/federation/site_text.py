"""A site's own text: its sentences and bags, what they are called outside, and what may be counted of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles
from fedrel.federation.messages import RefusedError
from fedrel.federation.outside_names import OutsideNames
from fedrel.privacy.site_rules import digests
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.federation.resident import ResidentModel


COORDINATOR = -1  # the site number of the coordinator itself, for work on its own labelled sentences

Ints = npt.NDArray[np.int64]


class SiteText:
    """What one site holds, in one round."""

    def __init__(self, model: ResidentModel, number: int, round_: int) -> None:
        self.number, self.round = number, round_
        self._model, self._data = model, model.site_data

    @cached_property
    def rows(self) -> Ints:
        """The corpus rows of this site. A sentence's index at this site is its position in this list."""
        if self.number == COORDINATOR:
            return self._data.validation
        return self._data.partition.rows(self.number)

    @cached_property
    def bags(self) -> Bags:
        """The site's bags: one for each triple, or one for each document."""
        return self._data.bags(self.rows)

    def related(self, bags: Bags) -> npt.NDArray[np.bool_]:
        """Which bags have a relation other than `NA`."""
        return bags.labels >= int(self._data.corpus.has_na)

    @property
    def examples(self) -> Bags:
        """What local batches are drawn from: the bags, or each sentence by itself, as the config says."""
        return self.bags if self._model.training.batches_of == "bags" else self.singles(self.rows)

    @property
    def validation(self) -> Bags:
        """The coordinator's labelled sentences that every site has too (FedED's D_v), in an agreed order."""
        return self.singles(self._data.validation)

    @cached_property
    def label_counts(self) -> Ints:
        """How many of the site's sentences have each relation, [R]; `RefusedError` if noise hides single ones."""
        if self._model.privacy.sentence_noise is not None and self.number != COORDINATOR:
            raise RefusedError("counts of relations depend on every sentence, and no noise covers them")
        corpus = self._data.corpus
        return np.bincount(corpus.relation[self.rows], minlength=len(corpus.relations))

    def rows_at(self, index: npt.NDArray[np.int32]) -> Ints:
        """The rows of sentences given by their index; `RefusedError` for an index out of range or given twice."""
        if len(index) and index.max() >= len(self.rows):
            raise RefusedError(f"names sentence {index.max()}, but this site holds {len(self.rows)}")
        if len(np.unique(index)) < len(index):  # else a few sentences would count as many examples
            raise RefusedError("names a sentence twice")
        return self.rows[index]

    def index_of(self, rows: Ints) -> npt.NDArray[np.int32]:
        """The index at this site of some of its rows."""
        order = np.argsort(self.rows)
        return order[np.searchsorted(self.rows, rows, sorter=order)].astype(np.int32)

    def rows_elsewhere(self, sites: npt.NDArray[np.int32], index: npt.NDArray[np.int32]) -> Ints:
        """Rows of other sites' sentences: only a simulation has them."""
        partition = self._data.partition
        if len(sites) and (sites.max() >= partition.sites or (index >= partition.sizes[sites]).any()):
            raise RefusedError("names a sentence that its site does not hold")
        rows: Ints = partition.order[partition.bounds[sites] + index]
        return rows

    def singles(self, rows: Ints) -> Bags:
        """Each sentence as a bag of its own, with its triple's relation as label."""
        corpus = self._data.corpus
        return singles(rows, corpus.relation[rows].astype(np.int64), corpus.triple[rows].astype(np.int64))

    def sample(self, bags: Bags, count: int) -> Bags:
        """`count` of the bags at random, drawn anew in every round."""
        generator = numpy_generator(self._model.seed, "sample", self.round, self.number)
        return bags.take(np.sort(generator.permutation(len(bags))[:count]))

    def digests(self, triples: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Keyed digests of triples. Real sites share the key and keep it from the coordinator.

        A simulation has nobody to keep it from: its key is derived from the run's seed.
        """
        corpus = self._data.corpus
        pair, relation = corpus.triples[triples].T
        head, tail = corpus.pairs[pair].T
        names = zip(
            (corpus.entities[i] for i in head),
            (corpus.relations[i] for i in relation),
            (corpus.entities[i] for i in tail),
            strict=True,
        )
        rules = self._model.rules
        key = rules.round_key(self.round) if rules else None
        return digests(key or numpy_generator(self._model.seed, "triple-key").bytes(32), names)

    @cached_property
    def outside(self) -> OutsideNames:
        """What the site's sentences are called outside."""
        model = self._model
        return OutsideNames(model.rules, model.states, model.seed, self.number, self.round)
