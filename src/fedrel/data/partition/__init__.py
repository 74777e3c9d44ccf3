"""Partitions: which site holds which rows, and the kinds of partition that a config can choose by name.

A kind is a class with a `name` and a method `divide`, in a module of this package, in an installed package
that declares it as an entry point of the group `fedrel.partitions`, or in a file that is loaded as a plug-in.
Nothing else names it: `partition.kind = "its-name"` in a config finds it.

The test set of a simulation belongs to no site. To measure how good a model is *for a site*, each gets the part of
it that looks like what it holds (`mirrored`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.config.plugins import Listed, Registry
from fedrel.config.schema import PartitionSection
from fedrel.data.sentences import SentenceCorpus
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


def mirrored(
    section: PartitionSection, parts: Partition, corpus: Corpus, test_rows: Ints, seed: int
) -> Partition:
    """Place every test row at exactly one of the partition's sites, under their names; none at a site without data.

    Where the partition's kind can tell which site's data a row is most like, it goes there. Otherwise sentences are
    placed by source and label, and documents in proportion to what each site holds.
    """
    site = PARTITIONS.find(section.kind)().site_like(section, parts, corpus, test_rows)
    if site is not None:
        return grouped(test_rows, site, parts.names)
    if corpus.label_of(test_rows) is None:
        return mirrored_by_size(parts, test_rows, seed)
    return mirrored_by_label(parts, corpus.require(SentenceCorpus), test_rows, seed)


def mirrored_by_label(parts: Partition, corpus: SentenceCorpus, test_rows: Ints, seed: int) -> Partition:
    """Place test sentences by their source and their label.

    Where the sites are the sources of the text, a sentence goes to the site of its own source. The others are
    dealt out class by class in proportion to n(k,c), how many training sentences of class c site k has; what
    does not divide evenly goes to the largest remainders, and among equal ones at random. A class that no
    site has is dealt out in proportion to the sites' sizes.
    """
    rows = np.asarray(test_rows, np.int64)
    site = _sites_of_sources(parts, corpus)[corpus.source[rows]]
    left = np.flatnonzero(site < 0)
    site[left] = _dealt(parts.label_counts(corpus), corpus.relation[rows[left]], seed)
    return grouped(rows, site, parts.names)


def mirrored_by_size(parts: Partition, test_rows: Ints, seed: int) -> Partition:
    """Place test rows at random, in proportion to the sites' sizes."""
    held = np.repeat(np.arange(parts.sites), parts.sizes)  # the site of each training row
    dealt = held[np.arange(len(test_rows)) * len(held) // len(test_rows)]
    order = numpy_generator(seed, "mirror").permutation(len(test_rows))
    return grouped(test_rows, dealt[order], parts.names)


def _sites_of_sources(parts: Partition, corpus: SentenceCorpus) -> Ints:
    """The site that each source of the corpus is, [sources]; -1 for one that is none.

    Names alone could agree by chance, so the sites must hold their own sources' rows and no others.
    """
    number = {name: site for site, name in enumerate(parts.names)}
    site = np.array([number.get(source, -1) for source in corpus.sources], np.int64)
    held = np.repeat(np.arange(parts.sites), parts.sizes)
    if (site[corpus.source[parts.order]] != held).any():
        site[:] = -1
    return site


def _dealt(counts: Ints, labels: NDArray[np.integer], seed: int) -> Ints:
    """A site for each test row by its label; `counts` is n(k,c), [sites, relations]."""
    site = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        generator = numpy_generator(seed, "mirror", int(label))
        places = generator.permutation(np.flatnonzero(labels == label))
        weights = counts[:, label] if counts[:, label].any() else counts.sum(axis=1)
        portions = _portions(len(places), weights, generator)
        site[places] = np.repeat(np.arange(len(weights)), portions)
    return site


def _portions(total: int, weights: Ints, generator: np.random.Generator) -> Ints:
    """Whole parts of `total` in proportion to `weights`, by largest remainders, in exact arithmetic.

    Ties are broken at random: otherwise the first sites would get the odd row of every class that all have alike.
    """
    portions, remainders = np.divmod(total * weights, weights.sum())
    tie_breaks = generator.permutation(len(weights))
    largest = np.lexsort((tie_breaks, -remainders))[: total - portions.sum()]
    portions[largest] += 1
    return portions
