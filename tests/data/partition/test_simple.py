from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.partition import Partition, single
from fedrel.data.partition.simple import by_source, from_file, iid
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.errors import UserError

SOURCES = ["web", "press", "web", "blog", "press", "web"]


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
