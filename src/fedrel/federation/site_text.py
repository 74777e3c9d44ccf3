"""A site's own text: its sentences and bags, what they are called outside, and what may be counted of them.

Outside, a sentence is called by its index in a simulation, else by its place in a shuffled list. The list is
another one in every round, and only the site can compute it. So an index says nothing about neighbours in the
text, a sentence cannot be followed from round to round, and only what was claimed in a round can win in it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles
from fedrel.federation.messages import RefusedError, UnclaimedError
from fedrel.privacy.site_rules import Wins, digests
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.federation.resident import ResidentModel
    from fedrel.federation.site_memory import SiteStates
    from fedrel.privacy.site_rules import SiteRules

COORDINATOR = -1  # the site number of the coordinator itself, for work on its own labelled sentences

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


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


class OutsideNames:
    """The names of one site's sentences in one round; without rules, as in a simulation, their index."""

    def __init__(
        self, rules: SiteRules | None, states: SiteStates, seed: int, site: int, round_: int
    ) -> None:
        self._rules, self._states, self._seed = rules, states, seed
        self._site, self._round = site, round_

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness of this round that nobody but the site can compute; in a simulation, from the run's seed."""
        if self._rules is None:
            return numpy_generator(self._seed, purpose, self._round, self._site)
        return self._rules.generator(self._round, purpose)

    def claim(self, index: Indices, held: int, *, decoys: bool = False) -> tuple[Ints, Indices]:
        """In which order to claim these sentences of a site that holds so many, and what to call each claim.

        An order of -1 is a decoy, a claim about nothing, where the message can have some.
        """
        rules = self._rules
        if rules is None:
            return np.arange(len(index)), index
        if rules.decoys and not decoys:
            raise RefusedError("privacy.decoys needs keyed claims: a fact's number is always a fact")
        more = min(int(rules.decoys * len(index)), held - len(index))
        order = np.concatenate([np.arange(len(index)), np.full(more, -1)])
        order = self.generator("shuffle").permutation(order)
        claimed = np.where(order < 0, -1, index[order]).astype(np.int32)
        before = self._states.kept(self._site, self._round)  # of a round that is done again
        self._states.keep(self._site, self._round, {**before, "claimed": claimed})
        return order, np.arange(len(order), dtype=np.int32)

    def won(self, names: Indices) -> Indices:
        """The index of sentences that won, by what `claim` called them, in order; without decoys.

        `UnclaimedError` for what the site did not claim in this round, for a claim twice, for a sentence that has
        won with few others in more rounds than the site allows, and for other winners than before in this round
        that differ from those by fewer sentences than an answer may be made from: two updates would tell these.
        """
        rules = self._rules
        if rules is None:
            return names
        kept = self._states.kept(self._site, self._round)
        claimed = kept.get("claimed", np.zeros(0, np.int32))
        if len(names) and names.max() >= len(claimed):
            raise UnclaimedError(f"says that claim {names.max()} won, and there were {len(claimed)} claims")
        if len(np.unique(names)) < len(names):
            raise UnclaimedError("says that a claim won twice")
        won = np.sort(claimed[names])
        won = won[won >= 0]
        few = len(won) < min(2 * rules.examples, len(claimed) / 2)
        if few and rules.wins and (often := Wins(rules.wins).add(self._round, won.tolist(), rules.alone)):
            raise UnclaimedError(f"sentence {often[0]} won with few others in more rounds than allow.alone")
        earlier = [name for name in kept if name != "claimed"]
        for name in earlier:
            if 0 < len(np.setxor1d(kept[name], won)) < rules.examples:
                raise UnclaimedError("the winners differ by few sentences from others of this round")
        if not any(np.array_equal(kept[name], won) for name in earlier):
            self._states.keep(self._site, self._round, {**kept, f"won {len(earlier)}": won})
        return won
