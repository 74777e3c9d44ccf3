"""Norms of updates, and which of them stand out."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.privacy.update_norms import Moves, Norms, described
from fedrel.tensors.weights import Rows, dense


def test_the_norm_of_rows_is_that_of_the_dense_update():
    generator = np.random.default_rng(1)
    base = {
        "table": generator.normal(size=(300, 50)).astype(np.float32),
        "filters": generator.normal(size=(20, 3, 7)).astype(np.float32),
        "bias": np.zeros(0, np.float32),
    }
    index = np.sort(generator.choice(300, 40, replace=False)).astype(np.int32)
    rows = Rows(index, generator.normal(size=(40, 50)).astype(np.float32), 0.9)
    update = {"table": rows, "filters": base["filters"] + np.float32(0.5), "bias": base["bias"]}
    full = dense(base, update)
    expected = np.sqrt(sum(np.square(full[name].astype(float) - base[name]).sum() for name in base))
    norms = Norms(base)
    assert norms.of(update) == pytest.approx(expected, rel=1e-6)
    assert norms.of(full) == pytest.approx(expected, rel=1e-6)
    assert norms.of(base) == 0


def moves(*pairs: tuple[float, int]) -> Moves:
    found = Moves()
    for site, (norm, examples) in enumerate(pairs):
        found.add(site, norm, examples)
    return found


def test_an_update_stands_out_if_neither_the_others_nor_its_examples_explain_its_norm():
    found = moves((1, 100), (1.2, 100), (0.9, 100), (20, 100), (8, 1000))
    # The median norm is 1.2, of the examples 100: site 4 with ten times as many may have 12.
    assert found.explained() == pytest.approx({0: 1.2, 1: 1.2, 2: 1.2, 3: 1.2, 4: 12.0})
    assert found.stood_out() == {3: 16.7}
    assert not found.diverges(12 * 9.9)
    assert found.diverges(12 * 10.1)


def test_one_update_or_none_or_no_move_at_all_stands_out():
    assert moves((5, 10)).stood_out() == moves().stood_out() == moves((0, 1), (0, 1)).stood_out() == {}
    assert not moves().diverges(1.0)
    assert not moves((0, 1), (0, 1)).diverges(0.0)


def test_those_that_stood_out_are_named_with_the_factor_and_no_others():
    assert described({3: 16.7, 1: 1000.0}, {1: "site-1", 3: "site-3", 2: "site-2"}) == (
        "site-3's update is 17 times, site-1's update is 1,000 times as long as the round's others explain"
    )
    assert described({}, {}) == ""
