"""Which site holds which instances. One array in site order, whatever the number of sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrel.data.sentences import TRAIN, Corpus
from fedrel.data.text_files import lines
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Site `k`, called `names[k]`, holds the corpus rows `order[bounds[k]:bounds[k + 1]]`."""

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]
    names: tuple[str, ...]

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many instances each site holds."""
        return np.diff(self.bounds)

    def rows(self, site: int) -> NDArray[np.int64]:
        """The corpus rows of one site."""
        return self.order[self.bounds[site] : self.bounds[site + 1]]

    def label_counts(self, corpus: Corpus) -> NDArray[np.int64]:
        """How many instances of each relation each site holds, [sites, relations]."""
        relations = len(corpus.relations)
        site = np.repeat(np.arange(self.sites), self.sizes)
        cells = np.bincount(site * relations + corpus.relation[self.order], minlength=self.sites * relations)
        return cells.reshape(self.sites, relations)


def single(rows: NDArray[np.int64]) -> Partition:
    """Everything at one site: centralised training."""
    return Partition(np.asarray(rows, np.int64), np.array([0, len(rows)]), ("all",))


def iid(rows: NDArray[np.int64], sites: int, seed: int) -> Partition:
    """Shuffled into `sites` parts that differ by one instance at most; none is dropped."""
    check_sites(rows, sites)
    order = numpy_generator(seed, "partition").permutation(np.asarray(rows, np.int64))
    bounds = np.arange(sites + 1) * len(rows) // sites
    return Partition(order, bounds, site_names(sites))


def by_source(corpus: Corpus, rows: NDArray[np.int64]) -> Partition:
    """A site for each source the instances name, in the order the corpus first names them."""
    present, site = np.unique(corpus.source[rows], return_inverse=True)
    names = tuple(corpus.sources[int(source)] for source in present)
    if "" in names:
        first = int(rows[np.argmax(site == names.index(""))])
        problem = f"instance {first + 1} of the corpus names no source"
        raise UserError(problem, hint="give every instance a source, or partition another way")
    return grouped(rows, site, names)


def from_file(path: Path, corpus: Corpus, rows: NDArray[np.int64]) -> Partition:
    """As a text file says: line i is the site, by number or name, of the corpus's i-th training instance.

    `rows` may leave some out, as duplicates are. Sites are in numerical order where all are numbers, else in
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


def grouped(rows: NDArray[np.int64], site: NDArray[np.int64], names: Sequence[str]) -> Partition:
    """Row i at the site with the number site[i]; each site's rows stay in their given order."""
    order = np.asarray(rows, np.int64)[np.argsort(site, kind="stable")]
    bounds = np.concatenate([[0], np.bincount(site, minlength=len(names)).cumsum()])
    return Partition(order, bounds, tuple(names))


def check_sites(rows: NDArray[np.int64], sites: int) -> None:
    """Refuse fewer sites than one, and more than instances: not even one each."""
    if not 1 <= sites <= len(rows):
        problem = f"cannot split {len(rows)} training instances over {sites} sites"
        raise UserError(problem, hint=f"choose between 1 and {len(rows)} sites")


def site_names(sites: int) -> tuple[str, ...]:
    """What sites are called that have no names of their own."""
    return tuple(f"site-{site}" for site in range(sites))
