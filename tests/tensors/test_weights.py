"""The running mean equals the mean of the models it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.tensors import compiling
from fedrel.tensors.weights import NoAnswerError, Rows, WeightedMean, moved, plus


@pytest.fixture(autouse=True, scope="module", params=["kernels", "numpy"])
def adding(request):
    """Sums are the same to the bit by kernels and without them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            pytest.importorskip("numba")
        else:
            patch.setattr(compiling, "has_numba", lambda: False)
        yield


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_row_sparse_mean_is_the_dense_mean(seed, weights):
    generator = np.random.default_rng(seed)
    base = {"table": generator.normal(size=(7, 3)).astype(np.float32), "bias": np.zeros(2, np.float32)}
    mean = WeightedMean(base)
    dense = {"table": np.zeros((7, 3)), "bias": np.zeros(2)}
    for weight in weights:
        index = np.flatnonzero(generator.random(7) < 0.4).astype(np.int32)
        rows = Rows(index, generator.normal(size=(len(index), 3)).astype(np.float32), generator.random())
        bias = generator.normal(size=2).astype(np.float32)
        mean.add({"table": rows, "bias": bias}, weight)
        whole = base["table"].astype(np.float64) * rows.rest
        whole[index] = rows.values
        dense["table"] += weight * whole
        dense["bias"] += weight * bias
    result = mean.result()
    for name, total in dense.items():
        np.testing.assert_allclose(result[name], total / sum(weights), atol=1e-6)
        assert result[name].dtype == np.float32


@pytest.mark.parametrize("rows_first", [True, False])
def test_a_table_may_come_whole_from_one_site_and_by_rows_from_another(rows_first):
    base = {"table": np.ones((3, 1), np.float32)}
    rows = Rows(np.array([1], np.int32), np.full((1, 1), 5, np.float32), 0.5)
    sent = [rows, np.full((3, 1), 3, np.float32)]
    mean = WeightedMean(base)
    for tensor in sent if rows_first else sent[::-1]:
        mean.add({"table": tensor}, 1)
    assert mean.result()["table"].ravel().tolist() == [1.75, 4, 1.75]


def test_a_mean_of_nothing_is_no_model():
    with pytest.raises(NoAnswerError):
        WeightedMean({"bias": np.zeros(2, np.float32)}).result()


def test_sums_are_the_plain_formulas_to_the_bit():
    generator = np.random.default_rng(3)
    base = {"table": generator.normal(size=(50, 3)).astype(np.float32), "bias": np.zeros(40, np.float32)}
    mean, table, bias, rest = WeightedMean(base), np.zeros((50, 3)), np.zeros(40), 0.0
    for weight in (3, 17, 5.5):
        index = np.flatnonzero(generator.random(50) < 0.4).astype(np.int32)
        rows = Rows(index, generator.normal(size=(len(index), 3)).astype(np.float32), generator.random())
        given_bias = generator.normal(size=40).astype(np.float32)
        mean.add({"table": rows, "bias": given_bias}, weight)
        table[index] += weight * (rows.values - rows.rest * base["table"][index].astype(np.float64))
        rest += weight * rows.rest
        bias += weight * given_bias.astype(np.float64)
    table += rest * base["table"].astype(np.float64)
    result = mean.result()
    np.testing.assert_array_equal(result["table"], (table / 25.5).astype(np.float32))
    np.testing.assert_array_equal(result["bias"], (bias / 25.5).astype(np.float32))


ROWS = st.lists(st.integers(0, 8), unique=True).map(sorted)


def sparse(index: list[int], seed: int, rest: float = 0.0) -> Rows:
    values = np.random.default_rng(seed).normal(size=(len(index), 2)).astype(np.float32)
    return Rows(np.array(index, np.int32), values, rest)


def whole(rows: Rows) -> np.ndarray:
    full = np.zeros((9, 2), np.float32)
    full[rows.index] = rows.values
    return full


@given(ROWS, ROWS)
def test_sums_of_rows_are_those_of_whole_tables(one, other):
    left, right = sparse(one, 1), sparse(other, 2)
    total = plus({"table": left}, {"table": right}, -0.5)["table"]
    assert total.index.tolist() == sorted({*one, *other}) and total.rest == 0
    np.testing.assert_array_equal(whole(total), whole(left) + np.float32(-0.5) * whole(right))
    np.testing.assert_array_equal(left.at(np.arange(9)), whole(left))


def test_a_tensor_on_one_side_only_counts_as_zero_on_the_other():
    ones, rows = np.ones(2, np.float32), sparse([1, 3], 1)
    total = plus({"bias": ones}, {"table": rows}, 2.0)
    np.testing.assert_array_equal(total["bias"], ones)
    np.testing.assert_array_equal(total["table"].values, 2 * rows.values)


def test_moves_of_a_table_leave_out_what_decay_did():
    start = {"table": np.full((9, 2), 2, np.float32), "bias": np.ones(2, np.float32)}
    rows = sparse([4, 6], 5, rest=0.5)
    moves = moved(start, {"table": rows, "bias": np.array([3, 0], np.float32)})
    assert moves["bias"].tolist() == [2, -1]
    assert moves["table"].index.tolist() == [4, 6] and moves["table"].rest == 0
    np.testing.assert_array_equal(moves["table"].values, rows.values - 1)
