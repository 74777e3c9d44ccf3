"""The running mean equals the mean of the models it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.federation.weights import NoAnswerError, Rows, WeightedMean


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 1000), min_size=1, max_size=6))
@settings(deadline=None)
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
