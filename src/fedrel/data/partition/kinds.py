"""Partitions at random, by the source of the text, as a file says, or with sites unlike each other.

Sites may differ in their labels (`dirichlet`, `shards`) or in their sizes (`quantity`). There a site may be left
with nothing; it is then never drawn. Shares are rounded to whole instances, and every instance is placed exactly
once.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrel.config.schema import PartitionSection
from fedrel.data.partition import Partition, PartitionKind, check_sites, grouped, site_names
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import TRAIN, Corpus, Ints
from fedrel.data.text_files import lines
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator

_DRAWS = 1000  # tries for `min_size`; only counts are drawn, so even 1000 take seconds
_TINIEST_ALPHA = 1e-300  # below this a division overflows; long before, one site has everything


class IID(PartitionKind):
    """Equal parts at random."""

    name = "iid"

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Shuffle the rows into `sites` parts."""
        return iid(rows, section.sites, seed)


class BySource(PartitionKind):
    """A site for each source of the text: natural sites, each with its own test part."""

    name = "source"

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Place each row at the site of its source."""
        return by_source(corpus, rows)

    def site_like(
        self, section: PartitionSection, parts: Partition, corpus: Corpus, rows: Ints
    ) -> Ints | None:
        """The site of each row's own source; None if some are from sources that are no site."""
        number = {name: site for site, name in enumerate(parts.names)}
        site = np.array([number.get(source, -1) for source in corpus.sources], np.int64)[corpus.source[rows]]
        return None if (site < 0).any() else site


class FromFile(PartitionKind):
    """Sites as a text file names them, a line for each training sentence."""

    name = "file"
    units = ("sentences",)

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Place each sentence at the site in its line of `partition.file`."""
        if section.file is None:
            raise UserError("partition.kind is 'file', but partition.file is not given")
        return from_file(section.file, corpus, rows)


def iid(rows: Ints, sites: int, seed: int) -> Partition:
    """Shuffle the rows into `sites` parts whose sizes differ by one at most."""
    check_sites(rows, sites)
    order = numpy_generator(seed, "partition").permutation(np.asarray(rows, np.int64))
    bounds = np.arange(sites + 1) * len(rows) // sites
    return Partition(order, bounds, site_names(sites))


def by_source(corpus: Corpus, rows: Ints) -> Partition:
    """A site for each source that the rows name, in the order in which the corpus first names them."""
    present, site = np.unique(corpus.source[rows], return_inverse=True)
    names = tuple(corpus.sources[int(source)] for source in present)
    if "" in names:
        first = int(rows[np.argmax(site == names.index(""))])
        problem = f"number {first + 1} of the corpus's {corpus.unit} names no source"
        hint = "write {site} in the paths of [data], give every sentence a source, or partition another way"
        raise UserError(problem, hint=hint)
    return grouped(rows, site, names)


def from_file(path: Path, corpus: Corpus, rows: Ints) -> Partition:
    """Line i of a text file is the site, by number or name, of the corpus's i-th training row.

    `rows` may leave some out, as duplicates are. Sites are in numerical order if all are numbers, else in
    alphabetical order.
    """
    labels: list[str] = []
    for number, line in lines(path):
        if not line.strip():
            raise UserError(
                "expected the number or name of a site, found an empty line", file=path, line=number
            )
        labels.append(line.strip())
    instances = corpus.rows(TRAIN)
    if len(labels) != len(instances):
        problem = f"expected a line for each of the {len(instances)} training instances, found {len(labels)}"
        raise UserError(problem, file=path)
    labels = [labels[place] for place in np.searchsorted(instances, rows)]
    distinct = set(labels)
    names = sorted(distinct, key=int) if all(map(str.isdecimal, distinct)) else sorted(distinct)
    number_of = {name: number for number, name in enumerate(names)}
    return grouped(rows, np.fromiter(map(number_of.__getitem__, labels), np.int64, len(rows)), names)


class Dirichlet(PartitionKind):
    """Skewed labels."""

    name = "dirichlet"
    units = ("sentences",)

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Share out each relation in random proportions."""
        labels = corpus.require(SentenceCorpus).relation[rows]
        return dirichlet(rows, labels, section.sites, section.alpha, seed, min_size=section.min_size)


class Quantity(PartitionKind):
    """Skewed sizes."""

    name = "quantity"

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Share out all rows in random proportions."""
        return quantity(rows, section.sites, section.alpha, seed, min_size=section.min_size)


class Shards(PartitionKind):
    """A few labels a site."""

    name = "shards"
    units = ("sentences",)

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Deal out shards of sentences sorted by relation."""
        labels = corpus.require(SentenceCorpus).relation[rows]
        return shards(rows, labels, section.sites, section.shards_per_site, seed)


def dirichlet(
    rows: Ints, labels: NDArray[np.integer], sites: int, alpha: float, seed: int, *, min_size: int = 0
) -> Partition:
    """Label skew: each class is shared out over the sites in proportions drawn from Dirichlet(alpha).

    `labels` has the class of each row. With a small alpha, one or two sites have all of a class; a large one
    comes close to IID. This is FedCMC's section 4.1; the code of some other papers also stops filling sites
    that have more than their equal share, which we do not. With `min_size`, all proportions are drawn again
    until every site has that many instances.
    """
    return _shared_out(rows, labels, sites, alpha, seed, min_size, "dirichlet")


def quantity(rows: Ints, sites: int, alpha: float, seed: int, *, min_size: int = 0) -> Partition:
    """Size skew: the sizes of the sites are drawn from Dirichlet(alpha), the instances at random."""
    one_class = np.zeros(len(rows), np.int64)
    return _shared_out(rows, one_class, sites, alpha, seed, min_size, "quantity")


def shards(rows: Ints, labels: NDArray[np.integer], sites: int, per_site: int, seed: int) -> Partition:
    """Label shards (McMahan et al. 2017): sorted by class, cut into equal shards, `per_site` dealt to each site.

    Sites are of nearly one size, and most hold about `per_site` classes.
    """
    check_sites(rows, sites)
    count = sites * per_site
    if not 1 <= per_site <= len(rows) // sites:
        problem = f"cannot cut {len(rows)} training instances into {sites} times {per_site} shards"
        most = len(rows) // sites
        raise UserError(problem, hint=f"choose between 1 and {most} for partition.shards_per_site")
    generator = numpy_generator(seed, "partition", "shards")
    by_class = _by_class(labels, generator)
    dealt_to = generator.permutation(count) // per_site
    site = np.empty(len(rows), np.int64)
    site[by_class] = np.repeat(dealt_to, np.diff(np.arange(count + 1) * len(rows) // count))
    return grouped(rows, site, site_names(sites))


def _shared_out(
    rows: Ints,
    labels: NDArray[np.integer],
    sites: int,
    alpha: float,
    seed: int,
    min_size: int,
    purpose: str,
) -> Partition:
    check_sites(rows, sites)
    if not 0 < alpha < math.inf:
        raise UserError(
            f"partition.alpha must be greater than 0 and finite, found {alpha}",
            hint="the smaller it is, the less alike are the sites; papers use 0.01 to 1",
        )
    generator = numpy_generator(seed, "partition", purpose)
    counts = _counts(np.bincount(labels), sites, alpha, min_size, generator)
    site = np.empty(len(rows), np.int64)
    site[_by_class(labels, generator)] = np.repeat(np.tile(np.arange(sites), len(counts)), counts.ravel())
    return grouped(rows, site, site_names(sites))


def _counts(
    class_sizes: Ints, sites: int, alpha: float, min_size: int, generator: np.random.Generator
) -> Ints:
    """How many instances of each class each site gets, [classes, sites], no site with less than `min_size`."""
    best = 0
    for _ in range(_DRAWS if min_size * sites <= class_sizes.sum() else 0):
        counts = _whole(class_sizes, _proportions(len(class_sizes), sites, alpha, generator), generator)
        best = max(best, smallest := int(counts.sum(axis=0).min()))
        if smallest >= min_size:
            return counts
    problem = (
        f"cannot give each of {sites} sites at least {min_size} of {class_sizes.sum()} training instances"
    )
    if min_size * sites <= class_sizes.sum():
        problem += f": with alpha {alpha:g}, {_DRAWS:,} draws left the smallest site with {best} at most"
    raise UserError(problem, hint="lower partition.min_size, choose fewer sites, or raise partition.alpha")


def _proportions(
    classes: int, sites: int, alpha: float, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draws from Dirichlet(alpha) over the sites, [classes, sites].

    They are gamma variables divided by their sum, but with a small alpha all of these may be too small for a float.
    So we compute their logarithms: Gamma(alpha) is Gamma(alpha + 1) * U^(1/alpha) with U uniform, and -log U is
    exponential.
    """
    shape = (classes, sites)
    logs = np.log(generator.standard_gamma(alpha + 1, shape))
    logs -= generator.standard_exponential(shape) / max(alpha, _TINIEST_ALPHA)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    proportions: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return proportions


def _whole(class_sizes: Ints, proportions: NDArray[np.float64], generator: np.random.Generator) -> Ints:
    """Proportions of each class as whole instances: less than one off, and right on average.

    The cuts lie at the cumulative proportions, moved by one random fraction of an instance a class. Rounding
    without it would send the only instance of every rare class to the same site in the middle.
    """
    sizes = class_sizes[:, None]
    cuts = np.floor(proportions.cumsum(axis=1) * sizes + generator.random((len(sizes), 1))).astype(np.int64)
    cuts = np.minimum(cuts, sizes)
    cuts[:, -1:] = sizes  # the last sum may be off by rounding
    counts: Ints = np.diff(cuts, axis=1, prepend=0)
    return counts


def _by_class(labels: NDArray[np.integer], generator: np.random.Generator) -> Ints:
    """Places in `labels`, class by class, shuffled within each."""
    shuffled = generator.permutation(len(labels))
    order: Ints = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return order
