"""SCAFFOLD's control variates by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.federation.messages import RefusedError
from fedrel.methods.controls import ControlledUpdate, change
from fedrel.tensors.weights import Rows

START = {
    "table": np.array([[1, 1], [2, 2], [3, 3]], np.float32),
    "bias": np.array([4, 5], np.float32),
}
C = {"table": np.array([[1, 2], [3, 4], [5, 6]], np.float32), "bias": np.array([-1, 2], np.float32)}


def update(row, bias, path):
    rows = Rows(np.array([1], np.int32), np.array([row], np.float32), 1.0)
    return ControlledUpdate({"table": rows, "bias": np.array(bias, np.float32)}, 3, 0.5, path)


def test_the_change_of_a_sites_control_variate():
    """Option II: (start - trained) / path - c; zero in rows that the update leaves out."""
    found = change(START, update([1, 4], [4, 1], 0.5).weights, 0.5, C)
    assert found["bias"].tolist() == [0 / 0.5 + 1, 4 / 0.5 - 2]
    assert (found["table"].index.tolist(), found["table"].rest) == ([1], 0)
    assert found["table"].values.tolist() == [[1 / 0.5 - 3, -2 / 0.5 - 4]]


def test_in_rows_that_an_update_leaves_out_c_alone_has_acted():
    drift = update([1, 4], [4, 1], 0.25).drift()
    assert drift.keys() == {"table"}
    assert (drift["table"].index.tolist(), drift["table"].values.tolist()) == ([1], [[0, 0]])
    assert drift["table"].rest == -0.25


@pytest.mark.parametrize(
    ("row", "bias"), [([2, 2], [4, 6]), ([2, 3], [4, 5]), ([2, 1], [4, 5]), ([2, 2], [3, 5])]
)
def test_a_move_that_is_too_long_for_its_path_is_refused(row, bias):
    update(row, bias, 1e-6).check_path(START)  # a million times the path: just possible
    name = "bias" if bias != [4, 5] else "table"
    with pytest.raises(RefusedError, match=f"{name} moved too far on a path of 9e-07"):
        update(row, bias, 9e-7).check_path(START)


def test_an_update_of_no_rows_is_possible():
    nothing = Rows(np.zeros(0, np.int32), np.zeros((0, 2), np.float32), 1.0)
    ControlledUpdate({"table": nothing, "bias": START["bias"]}, 3, 0.5, 1e-9).check_path(START)
