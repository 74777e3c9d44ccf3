from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import sample, split_rows
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.errors import UserError

RELATIONS = ("NA", "r")


def corpus_of(folder: Path, content: list[tuple[int, int, int, int]]) -> SentenceCorpus:
    instances = (
        Instance(
            f"x y {text}", Mention(f"e{head}", "x", 0, 1), Mention(f"e{tail}", "y", 2, 3), RELATIONS[label]
        )
        for head, tail, label, text in content
    )
    return SentenceCorpus.build(((0, one) for one in instances), folder, RELATIONS)


small = st.integers(0, 4)
contents = st.lists(st.tuples(small, small, st.integers(0, 1), st.integers(0, 2)), max_size=60)


@given(contents, st.integers(0, 5))
def test_no_pair_is_on_both_sides_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[int, int, int, int]], seed: int
) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", content)
    rows = np.arange(len(corpus))
    parts = split_rows(corpus, rows, seed=seed)
    assert len(parts) == 3
    pairs = [{frozenset(content[row][:2]) for row in part} for part in parts]
    assert not (pairs[0] & pairs[1] or pairs[0] & pairs[2] or pairs[1] & pairs[2])
    assert sorted(content[row] for part in parts for row in part) == sorted(set(content))
    again = split_rows(corpus, rows, seed=seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@given(contents)
def test_of_equal_rows_the_first_stays(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[int, int, int, int]]
) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", content)
    seen: dict[tuple[int, int, int, int], int] = {}
    for row, one in enumerate(content):
        seen.setdefault(one, row)
    assert corpus.without_duplicates(np.arange(len(corpus))).tolist() == list(seen.values())


def test_a_pair_in_two_places_of_a_sentence_is_no_duplicate(
    make_corpus: Callable[..., SentenceCorpus],
) -> None:
    def one(head: int, end: int, tail: int) -> Instance:
        return Instance("xx y x y", Mention("x", "x", head, end), Mention("y", "y", tail, tail + 1), "NA")

    corpus = make_corpus([one(0, 1, 3), one(5, 6, 3), one(0, 2, 3), one(5, 6, 3), one(0, 1, 7), one(0, 1, 3)])
    assert corpus.without_duplicates(np.arange(6)).tolist() == [0, 1, 2, 4]


def test_parts_have_their_share_of_the_pairs(tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", [(n, n + 1, 0, 0) for n in range(0, 2000, 2)])
    sizes = [len(part) for part in split_rows(corpus, np.arange(1000), seed=1)]
    assert sizes == [700, 100, 200]
    other = split_rows(corpus, np.arange(1000), (0.5, 0.5), seed=2)
    assert [len(part) for part in other] == [500, 500]


def test_fractions_must_add_up(make_corpus: Callable[..., SentenceCorpus]) -> None:
    corpus = make_corpus([], relations=["NA"])
    with pytest.raises(UserError, match="add up to 1"):
        split_rows(corpus, corpus.rows(0), (0.5, 0.4), seed=1)


def test_documents_are_dealt_out_by_fraction(make: Callable[..., DocumentCorpus]) -> None:
    corpus, rows = make([]), np.arange(100, 200)
    parts = split_rows(corpus, rows, (0.7, 0.1, 0.2), seed=3)
    assert [len(part) for part in parts] == [70, 10, 20]
    assert sorted(np.concatenate(parts).tolist()) == list(range(100, 200))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert parts[0].tolist() == split_rows(corpus, rows, seed=3)[0].tolist()
    assert parts[0].tolist() != split_rows(corpus, rows, seed=4)[0].tolist()
    with pytest.raises(UserError, match="fractions that add up to 1"):
        split_rows(corpus, np.arange(3), (0.5, 0.4), seed=1)


@pytest.fixture
def skewed(make_corpus: Callable[..., SentenceCorpus]) -> SentenceCorpus:
    """60 sentences of class 1, 30 of class 2, 10 of class 3, none of NA; rows in no order."""
    labels = np.random.default_rng(0).permutation(["a"] * 60 + ["b"] * 30 + ["c"] * 10)
    mentions = Mention("x", "x", 0, 1), Mention("y", "y", 2, 3)
    return make_corpus([Instance(f"x y {n}", *mentions, str(label)) for n, label in enumerate(labels)])


def counts(corpus: SentenceCorpus, rows: NDArray[np.int64]) -> list[int]:
    return np.bincount(corpus.relation[rows], minlength=4).tolist()


@pytest.mark.parametrize(
    ("n", "balanced", "expected"),
    [
        (30, True, [0, 10, 10, 10]),
        (20, True, [0, 7, 7, 6]),  # what is left over goes to the lowest classes
        (2, True, [0, 1, 1, 0]),
        (50, False, [0, 30, 15, 5]),
        (7, False, [0, 4, 2, 1]),  # 4.2, 2.1 and 0.7: the last has the largest remainder
        (100, False, [0, 60, 30, 10]),
    ],
)
def test_a_sample_has_its_share_of_each_class(
    skewed: SentenceCorpus, n: int, balanced: bool, expected: list[int]
) -> None:
    rows = sample(skewed, np.arange(100), n, balanced=balanced, seed=1)
    assert counts(skewed, rows) == expected
    assert (np.diff(rows) > 0).all()  # none twice, order kept


def test_a_sample_follows_the_seed_and_stays_within_the_rows(skewed: SentenceCorpus) -> None:
    some = np.arange(99, 9, -1)
    one, again, other = (sample(skewed, some, 20, balanced=False, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert set(one.tolist()) <= set(some.tolist()) and (np.diff(one) < 0).all()


@pytest.mark.parametrize("n", [0, 101])
def test_a_sample_of_more_than_there_is(skewed: SentenceCorpus, n: int) -> None:
    with pytest.raises(UserError, match=f"expected to draw from 1 to 100 sentences, found {n}"):
        sample(skewed, np.arange(100), n, balanced=False, seed=1)


def test_a_class_too_small_for_a_balanced_sample(skewed: SentenceCorpus) -> None:
    with pytest.raises(
        UserError, match=r"of 60 needs 20 sentences of 'c', there are 10\nhint: ask for fewer"
    ):
        sample(skewed, np.arange(100), 60, balanced=True, seed=1)
