"""Partitions: which site holds which training rows, and the kinds of partition that a config can choose by name.

A kind is a class with a `name` and a method `divide`, in a module of this package, in an installed package
that declares it as an entry point of the group `fedrel.partitions`, or in a file that is loaded as a plug-in.
Nothing else names it: `partition.kind = "its-name"` in a config finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrel.config.plugins import Listed, Registry
from fedrel.config.schema import PartitionSection
from fedrel.data.store import Corpus, Ints
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Site `k`, called `names[k]`, holds the corpus rows `order[bounds[k]:bounds[k + 1]]`.

    One array in the order of the sites, however many there are.
    """

    order: Ints
    bounds: Ints
    names: tuple[str, ...]

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.names)

    @property
    def sizes(self) -> Ints:
        """How many rows each site holds."""
        return np.diff(self.bounds)

    def rows(self, site: int) -> Ints:
        """The corpus rows of one site."""
        return self.order[self.bounds[site] : self.bounds[site + 1]]

    def label_counts(self, corpus: Corpus) -> Ints:
        """n(k,c): how many sentences, or pairs, of each relation each site holds, [sites, relations]."""
        return np.array([corpus.label_counts(self.rows(site)) for site in range(self.sites)], np.int64)


class PartitionKind(Listed):
    """One way to divide the training rows among sites.

    `units` are the kinds of corpora it can divide. `divide` reads its options from the config's partition section.
    """

    name: str = ""
    units: Sequence[str] = ("sentences", "documents")

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Place every one of these rows of the corpus at a site. Use `grouped` to make the partition."""
        raise NotImplementedError

    def site_like(
        self, section: PartitionSection, parts: Partition, corpus: Corpus, rows: Ints
    ) -> Ints | None:
        """The site whose data each of some other rows are most like; None where labels and sizes decide that."""
        return None


PARTITIONS = Registry(
    PartitionKind, package="fedrel.data.partition", group="fedrel.partitions", what="partition"
)


def divide(section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
    """Divide training rows among sites as a config says."""
    return PARTITIONS.find(section.kind)().divide(section, corpus, rows, seed)


def held_back(rows: Ints, share: float, seed: int) -> tuple[Ints, Ints]:
    """The rows for the sites, and a random share for the coordinator, each in their order."""
    held = numpy_generator(seed, "coordinator").permutation(len(rows)) < round(share * len(rows))
    return rows[~held], rows[held]


def single(rows: Ints) -> Partition:
    """Everything at one site: centralised training."""
    return Partition(np.asarray(rows, np.int64), np.array([0, len(rows)]), ("all",))


def grouped(rows: Ints, site: Ints, names: Sequence[str]) -> Partition:
    """Row i at the site with the number site[i]; each site's rows stay in their given order."""
    order = np.asarray(rows, np.int64)[np.argsort(site, kind="stable")]
    bounds = np.concatenate([[0], np.bincount(site, minlength=len(names)).cumsum()])
    return Partition(order, bounds, tuple(names))


def check_sites(rows: Ints, sites: int) -> None:
    """Raise a `UserError` if there is not at least one site, and one row for each."""
    if not 1 <= sites <= len(rows):
        problem = f"cannot split {len(rows)} training instances over {sites} sites"
        raise UserError(problem, hint=f"choose between 1 and {len(rows)} sites")


def site_names(sites: int) -> tuple[str, ...]:
    """Names for sites that have none of their own."""
    return tuple(f"site-{site}" for site in range(sites))
