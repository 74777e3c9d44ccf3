"""Compiled loops over arrays: a batch gathered, the rows that a site changed, and those rows reset."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.tensors import compiling

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)

from fedrel.tensors.array_kernels import changed_rows, lay_end_to_end, reset_rows

ROWS = st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1))))


def tables(size: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(size)
    return tuple(random.normal(size=(size, 3)).astype(np.float32) for _ in range(2))


@given(ROWS)
def test_changed_rows_are_listed_in_order_at_their_true_size(drawn: tuple[int, set[int]]) -> None:
    size, rows = drawn
    table, _ = tables(size)
    touched = np.isin(np.arange(size), list(rows))
    index, values = changed_rows(table, touched, 0.3)
    assert index.dtype == np.int32 and index.tolist() == sorted(rows)
    np.testing.assert_array_equal(values, table[sorted(rows)] * np.float32(0.3))


@given(ROWS)
def test_touched_rows_and_no_others_are_put_back(drawn: tuple[int, set[int]]) -> None:
    size, rows = drawn
    table, base = tables(size)
    touched = np.isin(np.arange(size), list(rows))
    expected = np.where(touched[:, None], base, table)
    assert reset_rows(table, touched, base) == len(rows)
    np.testing.assert_array_equal(table, expected)
    assert not touched.any()


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6), st.data())
def test_sentences_are_laid_end_to_end(sentences: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(sentences) - 1)))
    tokens = np.array([token for one in sentences for token in one], np.int32)
    starts = np.cumsum([0, *map(len, sentences)])
    lookup = np.arange(10)[::-1] * 7
    words, bounds = lay_end_to_end(tokens, starts, lookup.copy(), np.array(rows, np.int64))
    assert words.tolist() == [int(lookup[token]) for row in rows for token in sentences[row]]
    assert np.diff(bounds).tolist() == [len(sentences[row]) for row in rows] and bounds[0] == 0


def test_what_is_not_there_is_not_read() -> None:
    tokens, starts, lookup = np.array([0, 9], np.int32), np.array([0, 1, 2]), np.arange(3)
    for row, problem in ((-1, "corpus"), (2, "corpus"), (1, "vocabulary")):
        with pytest.raises(IndexError, match=problem):
            lay_end_to_end(tokens, starts, lookup, np.array([row]))
