"""Partitions at random, by source, from a file, and skewed ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedrel.data.partition import Partition, kinds, single
from fedrel.data.partition.kinds import by_source, dirichlet, from_file, iid, quantity, shards
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator

SOURCES = ["web", "press", "web", "blog", "press", "web"]
Ints = NDArray[np.int64]


@pytest.fixture
def corpus(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> SentenceCorpus:
    relations = ["NA", "r", "NA", "r", "r", "NA"]
    instances = [
        make_instance("Ada met Bo", "Ada", "Bo", relation, source)
        for source, relation in zip(SOURCES, relations, strict=True)
    ]
    return make_corpus(instances, [0, 0, 1, 0, 0, 0])


def held(partition: Partition) -> dict[str, list[int]]:
    return {name: partition.rows(site).tolist() for site, name in enumerate(partition.names)}


@given(st.integers(1, 200), st.data())
def test_iid_holds_every_instance_once_in_nearly_equal_parts(count: int, data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, count))
    rows = np.arange(count) * 3 + 1
    partition = iid(rows, sites, seed=data.draw(st.integers(0, 3)))
    assert partition.sites == len(partition.names) == len(set(partition.names)) == sites
    assert partition.sizes.max() - partition.sizes.min() <= 1
    everything = np.concatenate([partition.rows(site) for site in range(sites)])
    assert sorted(everything.tolist()) == rows.tolist()


def test_iid_is_shuffled_by_its_seed() -> None:
    rows = np.arange(100)
    one, same, other = (iid(rows, 10, seed).order.tolist() for seed in (1, 1, 2))
    assert one == same != other
    assert one != rows.tolist()


@pytest.mark.parametrize("sites", [0, 6])
def test_more_sites_than_instances_are_refused(sites: int) -> None:
    with pytest.raises(
        UserError, match=f"cannot split 5 training instances over {sites} sites\nhint: choose between 1 and 5"
    ):
        iid(np.arange(5), sites, seed=1)


def test_by_source(corpus: SentenceCorpus) -> None:
    assert held(by_source(corpus, corpus.rows(TRAIN))) == {"web": [0, 5], "press": [1, 4], "blog": [3]}


def test_by_source_needs_sources(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> None:
    instances = [make_instance("Ada met Bo", "Ada", "Bo", source=source) for source in ("web", "")]
    with pytest.raises(UserError, match="number 2 of the corpus's sentences names no source"):
        by_source(make_corpus(instances), np.arange(2))


def test_from_file_by_number(corpus: SentenceCorpus, tmp_path: Path) -> None:
    path = tmp_path / "sites.txt"
    path.write_text("10\n9\n10\n9\n2\n")
    partition = from_file(path, corpus, corpus.rows(TRAIN))
    assert held(partition) == {"2": [5], "9": [1, 4], "10": [0, 3]}


def test_from_file_by_name_with_rows_left_out(corpus: SentenceCorpus, tmp_path: Path) -> None:
    path = tmp_path / "sites.txt"
    path.write_text("north\nsouth\neast\nsouth\n1\n")
    assert held(from_file(path, corpus, np.array([5, 0, 4]))) == {"1": [5], "north": [0], "south": [4]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("1\n" * 4, "expected a line for each of the 5 training instances, found 4"),
        ("1\n\n1\n", r"sites\.txt:2: "),
    ],
)
def test_from_file_that_does_not_fit(
    corpus: SentenceCorpus, tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "sites.txt"
    path.write_text(content)
    with pytest.raises(UserError, match=problem):
        from_file(path, corpus, corpus.rows(TRAIN))


def test_single() -> None:
    assert held(single(np.array([4, 2]))) == {"all": [4, 2]}


def test_label_counts(corpus: SentenceCorpus) -> None:
    partition = by_source(corpus, corpus.rows(TRAIN))
    assert partition.label_counts(corpus).tolist() == [[2, 0], [0, 2], [0, 1]]


def by_dirichlet(rows: Ints, labels: Ints, sites: int, seed: int) -> Partition:
    return dirichlet(rows, labels, sites, 0.3, seed)


def by_quantity(rows: Ints, labels: Ints, sites: int, seed: int) -> Partition:
    return quantity(rows, sites, 0.3, seed)


def by_shards(rows: Ints, labels: Ints, sites: int, seed: int) -> Partition:
    return shards(rows, labels, sites, 2 if 2 * sites <= len(rows) else 1, seed)


EVERY = pytest.mark.parametrize("divide", [by_dirichlet, by_quantity, by_shards])


Divide = Callable[[Ints, Ints, int, int], Partition]


def counts(partition: Partition, labels: Ints) -> Ints:
    """[sites, classes], the slow way; rows are places in `labels`."""
    table = np.zeros((partition.sites, labels.max() + 1), np.int64)
    for site in range(partition.sites):
        for row in partition.rows(site):
            table[site, labels[row]] += 1
    return table


@EVERY
@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(0, 3), st.data())
def test_every_row_is_at_exactly_one_site(
    divide: Divide, labels: list[int], seed: int, data: st.DataObject
) -> None:
    rows = np.arange(len(labels)) * 3 + 1
    sites = data.draw(st.integers(1, len(labels)))
    partition = divide(rows, np.array(labels), sites, seed)
    assert sorted(partition.order.tolist()) == rows.tolist()
    assert (partition.bounds[0], partition.bounds[-1]) == (0, len(rows))
    assert (partition.sizes >= 0).all()
    assert partition.names == tuple(f"site-{site}" for site in range(sites))
    again = divide(rows, np.array(labels), sites, seed)
    assert again.order.tolist() == partition.order.tolist()
    assert again.bounds.tolist() == partition.bounds.tolist()


@EVERY
def test_another_seed_is_another_partition(divide: Divide) -> None:
    rows, labels = np.arange(200), np.arange(200) % 4
    one, other = (divide(rows, labels, 5, seed) for seed in (1, 2))
    assert one.order.tolist() != other.order.tolist()


@EVERY
@pytest.mark.parametrize("sites", [0, 6])
def test_more_skewed_sites_than_instances_are_refused(divide: Divide, sites: int) -> None:
    with pytest.raises(UserError, match=f"cannot split 5 training instances over {sites} sites"):
        divide(np.arange(5), np.zeros(5, np.int64), sites, 1)


@EVERY
def test_a_class_that_no_instance_has_changes_nothing(divide: Divide) -> None:
    rows, labels = np.arange(60), np.arange(60) % 3
    gaps = labels * 2 + 1  # classes 1, 3, 5 of 0 to 5 or more
    assert sorted(divide(rows, gaps, 4, 1).order.tolist()) == rows.tolist()


@given(st.integers(0, 12), st.integers(1, 6), st.sampled_from([0.2, 1.0, 10.0]), st.integers(0, 50))
def test_min_size_is_honoured_or_refused(min_size: int, sites: int, alpha: float, seed: int) -> None:
    rows, labels = np.arange(60), np.arange(60) % 3
    for divide in (
        lambda: dirichlet(rows, labels, sites, alpha, seed, min_size=min_size),
        lambda: quantity(rows, sites, alpha, seed, min_size=min_size),
    ):
        try:
            assert divide().sizes.min() >= min_size
        except UserError as error:
            assert min_size > 0 and f"at least {min_size} of 60" in str(error)


def test_min_size_that_no_draw_can_reach() -> None:
    with pytest.raises(UserError, match=r"at least 11 of 100 training instances\nhint: lower"):
        quantity(np.arange(100), 10, 1e6, seed=1, min_size=11)  # 110 > 100: refused without a draw
    with pytest.raises(
        UserError, match=r"with alpha 0\.01, 1,000 draws left the smallest site with 0 at most"
    ):
        dirichlet(np.arange(100), np.arange(100) % 2, 10, 0.01, seed=1, min_size=5)


def test_without_min_size_the_first_draw_counts() -> None:
    rows, labels = np.arange(300), np.arange(300) % 3
    free, least = (dirichlet(rows, labels, 4, 0.5, 1, min_size=size) for size in (0, 1))
    assert free.sizes.min() >= 1  # so that the redraw has nothing to do
    assert free.order.tolist() == least.order.tolist()


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive_and_finite(alpha: float) -> None:
    rows, labels = np.arange(10), np.zeros(10, np.int64)
    with pytest.raises(UserError, match="alpha must be greater than 0 and finite"):
        dirichlet(rows, labels, 2, alpha, seed=1)
    with pytest.raises(UserError, match="alpha must be greater than 0 and finite"):
        quantity(rows, 2, alpha, seed=1)


@pytest.mark.parametrize("alpha", [1e6, 1.7e308])
def test_a_large_alpha_is_nearly_iid(alpha: float) -> None:
    labels = np.repeat([0, 1, 2], [1000, 100, 50])
    table = counts(dirichlet(np.arange(1150), labels, 10, alpha, seed=1), labels)
    assert (np.abs(table - [100, 10, 5]) <= 1).all()
    assert (np.abs(quantity(np.arange(1150), 10, alpha, seed=1).sizes - 115) <= 1).all()


@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-300, 5e-324])
def test_a_tiny_alpha_leaves_each_class_to_one_site(alpha: float) -> None:
    labels = np.repeat([0, 1, 2, 3], 25)
    table = counts(dirichlet(np.arange(100), labels, 10, alpha, seed=1), labels)
    assert sorted(table.max(axis=0).tolist()) == [25] * 4
    assert quantity(np.arange(100), 10, alpha, seed=1).sizes.max() == 100


def test_the_favoured_site_is_not_always_the_same() -> None:
    favoured = [int(quantity(np.arange(20), 4, 1e-3, seed).sizes.argmax()) for seed in range(400)]
    assert (np.abs(np.bincount(favoured, minlength=4) - 100) < 40).all()  # 4.6 standard deviations


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5, 3.0])
def test_proportions_are_dirichlet(alpha: float) -> None:
    """The mean is 1/K, the variance (K - 1) / (K^2 (K alpha + 1)), as the distribution has them."""
    draws, sites = 20_000, 5
    found = kinds._proportions(draws, sites, alpha, numpy_generator(1, "test"))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found.mean(axis=0), 1 / sites, atol=0.015)
    variance = (sites - 1) / (sites**2 * (sites * alpha + 1))
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=0.06)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 8),
    st.floats(0.01, 100),
    st.integers(0, 100),
)
def test_counts_are_within_one_of_the_proportions(
    class_sizes: list[int], sites: int, alpha: float, seed: int
) -> None:
    generator = numpy_generator(seed, "test")
    sizes = np.array(class_sizes)
    proportions = kinds._proportions(len(sizes), sites, alpha, generator)
    found = kinds._whole(sizes, proportions, generator)
    assert found.sum(axis=1).tolist() == class_sizes
    assert (np.abs(found - proportions * sizes[:, None]) < 1 + 1e-9).all()


def test_rare_classes_go_anywhere() -> None:
    """Of 4,000 classes with one instance each, shared out evenly, every site gets about as many."""
    generator = numpy_generator(1, "test")
    found = kinds._whole(np.ones(4000, np.int64), np.full((4000, 4), 0.25), generator).sum(axis=0)
    assert (np.abs(found - 1000) < 130).all()  # 4.7 standard deviations


def test_quantity_keeps_the_labels_as_in_the_whole() -> None:
    labels = np.arange(4000) % 4
    partition = quantity(np.arange(4000), 3, 2.0, seed=1)
    table = counts(partition, labels)
    assert partition.sizes.max() > 1.5 * partition.sizes.min()
    expected = partition.sizes[:, None] / 4
    assert (np.abs(table - expected) < 5 * np.sqrt(expected)).all()


def test_shards_give_each_site_few_classes_and_equal_parts() -> None:
    labels = np.arange(600) % 6
    partition = shards(np.arange(600), labels, 6, 2, seed=1)
    table = counts(partition, labels)
    assert partition.sizes.tolist() == [100] * 6
    assert ((table > 0).sum(axis=1) <= 2).all()  # a class is two whole shards here
    assert set(table.ravel().tolist()) <= {0, 50, 100}


def test_shards_of_one_site_are_everything() -> None:
    assert shards(np.array([7, 3, 5]), np.array([1, 0, 1]), 1, 3, seed=1).order.tolist() == [7, 3, 5]


@pytest.mark.parametrize("per_site", [0, 3])
def test_more_shards_than_instances_are_refused(per_site: int) -> None:
    with pytest.raises(
        UserError, match=f"cannot cut 11 training instances into 4 times {per_site} shards(?s:.*) 1 and 2"
    ):
        shards(np.arange(11), np.zeros(11, np.int64), 4, per_site, seed=1)
