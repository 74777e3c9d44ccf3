from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedrel.data.partition import Partition, grouped, mirrored_by_label, site_names
from fedrel.data.partition.kinds import by_source, iid
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TEST, TRAIN

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """As much of a corpus as a mirror looks at."""

    relation: Ints
    source: Ints
    relations: tuple[str, ...]
    sources: tuple[str, ...] = ("",)

    def label_counts(self, rows: Ints) -> Ints:
        return np.bincount(self.relation[rows], minlength=len(self.relations))


def labelled(labels: list[int], classes: int) -> SentenceCorpus:
    names = tuple(f"r{label}" for label in range(classes))
    return cast(SentenceCorpus, Labels(np.array(labels, np.int64), np.zeros(len(labels), np.int64), names))


def counts(partition: Partition, corpus: SentenceCorpus) -> Ints:
    """[sites, relations], the slow way."""
    table = np.zeros((partition.sites, len(corpus.relations)), np.int64)
    for site in range(partition.sites):
        for row in partition.rows(site):
            table[site, corpus.relation[row]] += 1
    return table


@st.composite
def divided(draw: st.DrawFn) -> tuple[Partition, SentenceCorpus, Ints]:
    """Training rows at sites, some of which may be empty, and test rows of the same classes and others."""
    train = draw(st.lists(st.integers(0, 4), min_size=1, max_size=40))
    test = draw(st.lists(st.integers(0, 5), max_size=40))
    sites = draw(st.integers(1, 7))
    places = draw(st.lists(st.integers(0, sites - 1), min_size=len(train), max_size=len(train)))
    partition = grouped(np.arange(len(train)), np.array(places), site_names(sites))
    corpus = labelled([*train, *test], 6)
    return partition, corpus, np.arange(len(train), len(train) + len(test))


@given(divided(), st.integers(0, 3))
def test_every_row_is_at_one_site_and_labels_are_in_proportion(
    given_: tuple[Partition, SentenceCorpus, Ints], seed: int
) -> None:
    partition, corpus, test = given_
    mirror = mirrored_by_label(partition, corpus, test, seed)
    assert mirror.names == partition.names
    assert sorted(mirror.order.tolist()) == test.tolist()
    assert (mirror.bounds[0], mirror.bounds[-1]) == (0, len(test))
    train, dealt = counts(partition, corpus), counts(mirror, corpus)
    for label, total in enumerate(dealt.sum(axis=0)):
        own = train[:, label] if train[:, label].sum() else train.sum(axis=1)
        share = total * own / own.sum()
        assert (np.abs(dealt[:, label] - share) < 1).all()  # largest remainders stay within one of the quota
        assert not dealt[own == 0, label].any()
        rest = share - np.floor(share)
        up = dealt[:, label] > share
        down = (dealt[:, label] < share) & (rest > 0)
        if up.any() and down.any():
            assert rest[up].min() >= rest[down].max() - 1e-9
    again = mirrored_by_label(partition, corpus, test, seed)
    assert again.order.tolist() == mirror.order.tolist()


def test_by_hand() -> None:
    """Class 0 is 3:1:0 over the sites, class 1 all at the third; class 2 no site has, and sizes are 3:1:2."""
    partition = grouped(np.arange(6), np.array([0, 0, 0, 1, 2, 2]), ["a", "b", "c"])
    corpus = labelled([0, 0, 0, 0, 1, 1] + [0] * 10 + [1] * 3 + [2] * 12, 3)
    mirror = mirrored_by_label(partition, corpus, np.arange(6, 31), seed=1)
    table = counts(mirror, corpus).tolist()
    assert table in (  # 7.5 and 2.5: the odd one falls to either by lot
        [[8, 0, 6], [2, 0, 2], [0, 3, 4]],
        [[7, 0, 6], [3, 0, 2], [0, 3, 4]],
    )


def test_odd_rows_are_not_all_at_the_first_site() -> None:
    """Thirty classes with one test row each, of which all three sites have as many."""
    partition = grouped(np.arange(90), np.arange(90) % 3, site_names(3))
    corpus = labelled([*(row // 3 for row in range(90)), *range(30)], 30)
    sizes = mirrored_by_label(partition, corpus, np.arange(90, 120), seed=1).sizes
    assert sizes.sum() == 30
    assert sizes.min() >= 4


def test_which_rows_is_left_to_the_seed() -> None:
    partition = iid(np.arange(20), 2, seed=1)
    corpus = labelled([0] * 60, 1)
    one, same, other = (
        mirrored_by_label(partition, corpus, np.arange(20, 60), seed).order.tolist() for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.fixture
def sourced(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> SentenceCorpus:
    """Three training rows of two sources, then test rows of these and of a third."""
    data = [("web", "r"), ("press", "NA"), ("web", "r")]
    data += [("press", "r"), ("web", "NA"), ("blog", "NA"), ("press", "NA")]
    instances = [make_instance("Ada met Bo", "Ada", "Bo", relation, source) for source, relation in data]
    return make_corpus(instances, [TRAIN] * 3 + [TEST] * 4)


def held(partition: Partition) -> dict[str, list[int]]:
    return {name: partition.rows(site).tolist() for site, name in enumerate(partition.names)}


def test_sources_keep_their_own(sourced: SentenceCorpus) -> None:
    """The blog's row has no site of its own; it is `NA`, which only the press has in training."""
    partition = by_source(sourced, sourced.rows(TRAIN))
    mirror = mirrored_by_label(partition, sourced, sourced.rows(TEST), seed=1)
    assert held(mirror) == {"web": [4], "press": [3, 5, 6]}


def test_names_that_agree_by_chance_are_no_sources(sourced: SentenceCorpus) -> None:
    partition = grouped(sourced.rows(TRAIN), np.array([1, 0, 1]), ["web", "press"])
    mirror = mirrored_by_label(partition, sourced, sourced.rows(TEST), seed=1)
    assert held(mirror) == {"web": [4, 5, 6], "press": [3]}  # by label: `NA` is at the one called web
