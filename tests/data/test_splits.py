from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.columns import Corpus, build
from fedrel.data.instances import Instance, Mention
from fedrel.data.splits import split_by_pair, without_duplicates
from fedrel.errors import UserError

RELATIONS = ("NA", "r")


def corpus_of(folder: Path, content: list[tuple[int, int, int, int]]) -> Corpus:
    instances = (
        Instance(
            f"x y {text}", Mention(f"e{head}", "x", 0, 1), Mention(f"e{tail}", "y", 2, 3), RELATIONS[label]
        )
        for head, tail, label, text in content
    )
    return build(((0, one) for one in instances), folder, RELATIONS)


small = st.integers(0, 4)
contents = st.lists(st.tuples(small, small, st.integers(0, 1), st.integers(0, 2)), max_size=60)


@given(contents, st.integers(0, 5))
@settings(deadline=None, max_examples=50)
def test_no_pair_is_on_both_sides_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[int, int, int, int]], seed: int
) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", content)
    rows = np.arange(len(corpus))
    parts = split_by_pair(corpus, rows, seed=seed)
    assert len(parts) == 3
    pairs = [{frozenset(content[row][:2]) for row in part} for part in parts]
    assert not (pairs[0] & pairs[1] or pairs[0] & pairs[2] or pairs[1] & pairs[2])
    assert sorted(content[row] for part in parts for row in part) == sorted(set(content))
    again = split_by_pair(corpus, rows, seed=seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@given(contents)
@settings(deadline=None, max_examples=30)
def test_of_equal_rows_the_first_stays(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[int, int, int, int]]
) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", content)
    seen: dict[tuple[int, int, int, int], int] = {}
    for row, one in enumerate(content):
        seen.setdefault(one, row)
    assert without_duplicates(corpus, np.arange(len(corpus))).tolist() == list(seen.values())


def test_parts_have_their_share_of_the_pairs(tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("c") / "corpus", [(n, n + 1, 0, 0) for n in range(0, 2000, 2)])
    sizes = [len(part) for part in split_by_pair(corpus, np.arange(1000), seed=1)]
    assert sizes == [700, 100, 200]
    other = split_by_pair(corpus, np.arange(1000), (0.5, 0.5), seed=2)
    assert [len(part) for part in other] == [500, 500]


def test_fractions_must_add_up(make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus([], relations=["NA"])
    with pytest.raises(UserError, match="add up to 1"):
        split_by_pair(corpus, corpus.rows(0), (0.5, 0.4), seed=1)
