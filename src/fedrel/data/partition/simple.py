"""Partitions at random, by the source of the text, or as a file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrel.config.schema import PartitionSection
from fedrel.data.partition import Partition, PartitionKind, check_sites, grouped, site_names
from fedrel.data.store import TRAIN, Corpus, Ints
from fedrel.data.text_files import lines
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


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
