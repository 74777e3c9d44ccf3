"""Whose text is whose while leaks are measured.

Each text of the training part is drawn once into one of three groups: half of the texts stay where they are, and
their sites train on them (members); a quarter is taken away from the sites (outsiders: an attack has to tell them
from members); a quarter is what the attacker has, text of the same kind. All rows of a text share its group. So
members and outsiders differ in nothing but that they were trained on, whatever the partition is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles
from fedrel.data.partition import Partition
from fedrel.data.sentences import SentenceCorpus
from fedrel.errors import UserError
from fedrel.federation.site_data import SiteData
from fedrel.runs.prepare import Preparation
from fedrel.seeding import numpy_generator

Ints = npt.NDArray[np.int64]

MEMBERS, OUTSIDERS = 0.5, 0.25  # shares of the texts; the attacker has the rest
POPULATION = 500  # sentences that the attacker compares with, at most
PLANTED = (
    10  # of a site's members, of its outsiders, and of a shadow site's rows, those that are in FedED's D_v
)


@dataclass(frozen=True)
class LeakTexts:
    """The rows of every group, and of the shadow sites: the attacker's own, made of its text."""

    corpus: SentenceCorpus
    members: Sequence[Ints]  # by site
    outsiders: Sequence[Ints]  # by site
    shadows: Sequence[Ints]  # by shadow site
    population: Ints  # the attacker's, at no shadow site

    @property
    def sites(self) -> int:
        """How many real sites there are; shadow sites are numbered after them."""
        return len(self.members)

    @property
    def reference(self) -> Ints:
        """All text that the attacker has."""
        return np.unique(np.concatenate([self.population, *self.shadows]))

    def candidates(self, site: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """The sentences about which the attacker asks whether the site has them, and which it has."""
        rows = [self.members[site], self.outsiders[site]]
        return np.concatenate(rows), np.repeat([True, False], [len(part) for part in rows])

    def planted(self) -> Ints:
        """Candidates of all sites for D_v: some members and as many outsiders; and the rehearsal's."""
        few = [part[:PLANTED] for parts in (self.members, self.outsiders) for part in parts]
        return np.unique(np.concatenate([*few, self.rehearsed()]))

    def rehearsed(self) -> Ints:
        """Some rows of every shadow site, on which the attacker tries its attack."""
        return np.unique(np.concatenate([rows[:PLANTED] for rows in self.shadows]))

    def held(self, shadows: Sequence[int], rows: Ints) -> npt.NDArray[np.bool_]:
        """Which of some rows one of these shadow sites has, given by their numbers after the real ones."""
        return np.isin(rows, np.concatenate([self.shadows[number - self.sites] for number in shadows]))

    def bags(self, rows: Ints) -> Bags:
        """Rows as single sentences."""
        corpus = self.corpus
        return singles(rows, corpus.relation[rows].astype(np.int64), corpus.triple[rows].astype(np.int64))

    def shares(self, rows: Ints) -> npt.NDArray[np.float64]:
        """The share of each relation among rows."""
        counts = self.corpus.label_counts(rows)
        found: npt.NDArray[np.float64] = counts / max(counts.sum(), 1)
        return found


def divided(ready: Preparation, shadows: int, seed: int) -> LeakTexts:
    """Draw the groups, and the text of so many shadow sites."""
    data = ready.site_data
    if data.text.unit != "sentences":
        raise UserError(
            "leaks are measured on sentences, but the data are documents", hint="choose another config"
        )
    corpus, parts = data.corpus, data.partition
    _, text = np.unique(corpus.text_numbers(), return_inverse=True)
    drawn = numpy_generator(seed, "leak texts").random(int(text.max()) + 1)[text]
    member, outsider = drawn < MEMBERS, (drawn >= MEMBERS) & (drawn < MEMBERS + OUTSIDERS)
    rows = [parts.rows(site) for site in range(parts.sites)]
    members = [own[member[own]] for own in rows]
    rest = np.sort(parts.order[~(member | outsider)[parts.order]])
    mine = numpy_generator(seed, "population").permutation(rest)
    population = np.sort(mine[: min(POPULATION, len(mine) // 3)])
    pool = mine[len(population) :]
    size = int(np.median([len(own) for own in members if len(own)] or [0]))
    if not size or len(pool) < size or not len(population):
        raise UserError(
            f"{len(rest)} sentences are left for the attacker, too few for a shadow site of {size}",
            hint="take more sites, or more text",
        )
    made = [
        np.sort(numpy_generator(seed, "shadow", number).permutation(pool)[:size]) for number in range(shadows)
    ]
    return LeakTexts(corpus, members, [own[outsider[own]] for own in rows], made, population)


def with_shadows(ready: Preparation, texts: LeakTexts) -> Preparation:
    """The same data, where sites have their members only, shadow sites follow, and D_v is the attacker's choice."""
    data, parts = ready.site_data, ready.site_data.partition
    rows = [*texts.members, *texts.shadows]
    names = (*parts.names, *(f"shadow-{number}" for number in range(len(texts.shadows))))
    bounds = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
    validation = np.unique(np.concatenate([texts.population, texts.planted()]))
    changed: SiteData = replace(
        data,
        partition=Partition(np.concatenate(rows), bounds, names),
        validation=validation,
        watched=data.watched[:0],
    )
    return replace(ready, site_data=changed)
