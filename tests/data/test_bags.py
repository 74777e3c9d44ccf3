"""Bags and batches against slow loops over the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.bags import Bags, ragged, singles, slices
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.data.vectors import Vocabulary
from fedrel.extractors.words import WordInputs

RELATIONS = (NA, "r1", "r2")
rows_of_corpus = st.lists(st.integers(0, 39), unique=True).map(lambda rows: np.array(rows, dtype=np.int64))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SentenceCorpus:
    """Forty sentences about few pairs: several a bag, some twice under two relations or with one text."""
    random = np.random.default_rng(5)
    instances = []
    for _ in range(40):
        head, tail = (f"e{number}" for number in random.integers(0, 3, 2))
        filler = " ".join(f"w{number}" for number in random.integers(0, 2, random.integers(0, 4)))
        text = f"{head} {filler} {tail}".replace("  ", " ")
        one, two = Mention(head, head, 0, 2), Mention(tail, tail, len(text) - 2, len(text))
        instances.append((TRAIN, Instance(text, one, two, RELATIONS[random.integers(0, 3)])))
    return SentenceCorpus.build(instances, Path(tmp_path_factory.mktemp("bags")) / "corpus", RELATIONS)


def contents(bags: Bags) -> list[tuple[int, int, list[int]]]:
    """Each bag's key, label and rows."""
    return [
        (int(bags.keys[b]), int(bags.labels[b]), bags.rows[bags.bounds[b] : bags.bounds[b + 1]].tolist())
        for b in range(len(bags))
    ]


@given(rows=rows_of_corpus)
def test_a_training_bag_holds_the_rows_of_its_triple_in_their_order(
    corpus: SentenceCorpus, rows: np.ndarray
) -> None:
    grouped: dict[int, list[int]] = {}
    for row in rows.tolist():
        grouped.setdefault(int(corpus.triple[row]), []).append(row)
    expected = [(key, int(corpus.relation[grouped[key][0]]), grouped[key]) for key in sorted(grouped)]
    assert contents(corpus.bags(rows)) == expected


@given(rows=rows_of_corpus)
def test_a_test_bag_holds_each_sentence_of_its_pair_once(corpus: SentenceCorpus, rows: np.ndarray) -> None:
    grouped: dict[int, list[int]] = {}
    seen = set()
    for row in rows.tolist():
        pair = int(corpus.pair[row])
        if (pair, corpus.text_of(row)) not in seen:
            seen.add((pair, corpus.text_of(row)))
            grouped.setdefault(pair, []).append(row)
    assert contents(corpus.bags_by_pair(rows)) == [(key, 0, grouped[key]) for key in sorted(grouped)]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 6))))
def test_ragged_lays_runs_end_to_end(runs: list[tuple[int, int]]) -> None:
    starts, sizes = (np.array([run[part] for run in runs], dtype=np.int64) for part in (0, 1))
    expected = [place for start, size in runs for place in range(start, start + size)]
    assert ragged(starts, sizes).tolist() == expected


@given(rows=rows_of_corpus, picks=st.lists(st.integers(0, 10**6), max_size=8))
def test_take_gives_the_bags_asked_for_in_that_order(
    corpus: SentenceCorpus, rows: np.ndarray, picks: list[int]
) -> None:
    bags = corpus.bags(rows)
    which = np.array([pick % len(bags) for pick in picks if len(bags)], dtype=np.int64)
    whole = contents(bags)
    assert contents(bags.take(which)) == [whole[bag] for bag in which]


@given(rows=rows_of_corpus, sentences=st.integers(1, 12))
def test_slices_are_as_full_as_whole_bags_allow(
    corpus: SentenceCorpus, rows: np.ndarray, sentences: int
) -> None:
    bags = corpus.bags(rows)
    expected: list[list[tuple[int, int, list[int]]]] = []
    for bag in contents(bags):
        if not expected or sum(len(one[2]) for one in (*expected[-1], bag)) > sentences:
            expected.append([])
        expected[-1].append(bag)
    assert [contents(part) for part in slices(bags, sentences)] == expected


@given(rows=rows_of_corpus.filter(len))
def test_a_batch_holds_the_words_and_places_of_its_sentences(
    corpus: SentenceCorpus, rows: np.ndarray
) -> None:
    lookup = 7 * np.arange(len(corpus.words)) + 3
    bags = corpus.bags(rows)
    batch = WordInputs(corpus, lookup, 7 * len(corpus.words) + 3, None, lambda: Vocabulary(())).batch(bags)
    assert batch.rows.tolist() == bags.rows.tolist()
    assert batch.bags.tolist() == bags.bounds.tolist()
    assert batch.labels.tolist() == bags.labels.tolist()
    numbers = {word: number for number, word in enumerate(corpus.words)}
    for place, row in enumerate(bags.rows.tolist()):
        words = corpus.text_of(row).split()
        begin, end = batch.starts[place : place + 2].tolist()
        assert batch.words[begin:end].tolist() == [7 * numbers[word] + 3 for word in words]
        assert batch.head[place] == 0
        assert batch.tail[place] == len(words) - 1


def test_singles_are_bags_of_one() -> None:
    bags = singles(np.array([4, 2]), np.array([1, 0]), np.array([9, 8]))
    assert contents(bags) == [(9, 1, [4]), (8, 0, [2])]
