"""Declarations of messages at their limits: the last value that is taken, and the first that is not."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.federation.messages import LARGEST, Array, Holdings, ModelTensors, RefusedError, Update, payload
from fedrel.methods.claims import Claims
from fedrel.tensors.weights import Rows

SHAPES = {"table": (4, 2), "bias": (3,)}


def refusal(declared: Array, array, sizes=None) -> str | None:
    try:
        declared.check("x", np.asarray(array), {} if sizes is None else sizes)
    except RefusedError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("declared", "array", "reason"),
    [
        (Array("float64", low=0, high=1), 0.0, None),
        (Array("float64", low=0, high=1), 1.0, None),
        (Array("float64", low=0, high=1), -1e-9, "x holds -1e-09, below 0"),
        (Array("float64", low=0, high=1), 1.5, "x holds 1.5, above 1"),
        (Array("float64"), -1e300, None),
        (Array("float64", low=-1), 1e300, None),
        (Array("float64", high=1), -1e300, None),
        (Array("float64"), np.nan, "x holds a value that is not finite"),
        (Array("float64"), np.inf, "x holds a value that is not finite"),
        (Array("float64"), -np.inf, "x holds a value that is not finite"),
        (Array("float64", ("n",)), [0.0, -np.inf], "x holds a value that is not finite"),
        (Array("float64", ("n",)), [np.inf, 0.0], "x holds a value that is not finite"),
        (Array("float64", ("n",), low=0, high=1), [0.5, 2.0, 0.0], "x holds 2.0, above 1"),
        (Array("float64", ("n",), low=0, high=1), [0.5, 1.0, -2.0], "x holds -2.0, below 0"),
        (Array("float64", ("n",), low=5), [], None),
        (Array("int64", (2,)), [1, 2], None),
        (Array("int64", (2,)), [1, 2, 3], "x has shape (3,), expected 2 along 2"),
        (Array("int64", (1000,)), [1] * 1000, None),
        (Array("int64", ("n", "n")), [[1] * 1000] * 1000, None),
        (Array("int64", ("n", 2)), [[1, 2]], None),
        (Array("int64", ("n", "n")), [[1, 2]], "x has shape (1, 2), expected 1 along n"),
        (Array("int64", ("n",)), 1, "x has 0 dimensions, expected 1"),
        (Array("int64"), [1], "x has 1 dimensions, expected 0"),
        (Array("int32"), 1, "x is int64, expected int32"),
    ],
)
def test_an_array_fits_its_declaration_or_is_refused_with_the_reason(declared, array, reason):
    assert refusal(declared, array) == reason


def test_a_dimension_with_a_name_has_one_size_in_a_message():
    sizes: dict[str, int] = {}
    assert refusal(Array("int64", ("n",)), [1, 2], sizes) is None
    assert sizes == {"n": 2}
    assert refusal(Array("int64", (3, "n")), [[1, 2]] * 3, sizes) is None
    assert refusal(Array("int64", ("n",)), [1], sizes) == "x has shape (1,), expected 2 along n"


def packed(**changes):
    rows = Rows(np.array([0, 3], np.int32), np.array([[1, 2], [3, 4]], np.float32), 0.5)
    flat = ModelTensors(rows=True).pack({"table": rows, "bias": np.array([7, 8, 9], np.float32)})
    return {name: array for name, array in (flat | changes).items() if array is not None}


def test_tensors_are_packed_by_name_and_rows_in_three_parts():
    flat = packed()
    assert {name: array.tolist() for name, array in flat.items()} == {
        "table/index": [0, 3],
        "table/values": [[1, 2], [3, 4]],
        "table/rest": 0.5,
        "bias": [7, 8, 9],
    }
    assert (flat["table/rest"].dtype, flat["table/rest"].shape) == (np.float64, ())
    tensors = ModelTensors(rows=True).unpack(flat, SHAPES)
    assert list(tensors) == ["table", "bias"]
    assert (tensors["table"].index.tolist(), tensors["table"].rest) == ([0, 3], 0.5)
    assert isinstance(tensors["table"].rest, float)


@pytest.mark.parametrize("index", [[0, 2, 1], [0, 2, 2], [1, 0, 2]])
def test_each_row_number_must_be_above_the_one_before_it(index):
    rows = {"table/index": np.array(index, np.int32), "table/values": np.ones((3, 2), np.float32)}
    with pytest.raises(RefusedError, match="table/index is not ascending"):
        ModelTensors(rows=True).unpack(packed(**rows), SHAPES)


@pytest.mark.parametrize("rest", [0.0, 1.0])
@pytest.mark.parametrize("value", [-LARGEST, LARGEST])
def test_the_largest_numbers_that_are_taken(rest, value):
    changes = {"table/rest": np.array(rest), "table/values": np.full((2, 2), value, np.float32)}
    tensors = ModelTensors(rows=True).unpack(packed(**changes, bias=np.full(3, value, np.float32)), SHAPES)
    assert tensors["table"].rest == rest
    assert tensors["table"].values.min() == tensors["bias"].max() == value


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("table/index", np.array([0, 4], np.int32), "table/index holds 4, above 3"),
        ("table/index", np.array([-1, 2], np.int32), "table/index holds -1, below 0"),
        ("table/index", np.array([2, 2], np.int32), "table/index is not ascending"),
        ("table/index", np.array([2, 1], np.int32), "table/index is not ascending"),
        ("table/index", np.array([1], np.int32), "table/values has shape (2, 2), expected 1 along rows"),
        ("table/index", None, "table is missing"),
        ("table/values", None, "table/values is missing"),
        ("table/values", np.zeros((2, 3), np.float32), "table/values has shape (2, 3), expected 2 along 2"),
        ("table/values", np.full((2, 2), 1.1e6, np.float32), "table/values holds 1100000.0, above 1000000.0"),
        (
            "table/values",
            np.full((2, 2), -1.1e6, np.float32),
            "table/values holds -1100000.0, below -1000000.0",
        ),
        ("table/rest", None, "table/rest is missing"),
        ("table/rest", np.array(-0.1), "table/rest holds -0.1, below 0"),
        ("table/rest", np.array(1.1), "table/rest holds 1.1, above 1"),
        ("bias", None, "bias is missing"),
        ("bias", np.full(3, 1.1e6, np.float32), "bias holds 1100000.0, above 1000000.0"),
        ("bias", np.full(3, -1.1e6, np.float32), "bias holds -1100000.0, below -1000000.0"),
        ("other", np.zeros(3, np.float32), "other is not a tensor of the model"),
    ],
)
def test_tensors_that_do_not_fit_the_model_are_refused(name, array, reason):
    with pytest.raises(RefusedError) as refused:
        ModelTensors(rows=True).unpack(packed(**{name: array}), SHAPES)
    assert str(refused.value) == reason


def test_rows_are_taken_only_where_they_are_declared_and_none_are_rows_too():
    assert ModelTensors() == ModelTensors(rows=False)
    with pytest.raises(RefusedError, match="table is missing"):
        ModelTensors().unpack(packed(), SHAPES)
    nothing = {"table/index": np.zeros(0, np.int32), "table/values": np.zeros((0, 2), np.float32)}
    assert len(ModelTensors(rows=True).unpack(packed(**nothing), SHAPES)["table"].index) == 0


def update(**changes):
    flat = Update(ModelTensors(rows=True).unpack(packed(), SHAPES), 5, 0.25).pack()
    return {name: array for name, array in (flat | changes).items() if array is not None}


def test_a_message_is_packed_and_unpacked():
    flat = update()
    table = ["weights/table/index", "weights/table/values", "weights/table/rest"]
    assert list(flat) == [*table, "weights/bias", "examples", "loss"]
    assert payload(flat) == 2 * 4 + 4 * 4 + 8 + 3 * 4 + 8 + 8
    again = Update.unpack(flat, SHAPES)
    assert (again.examples, type(again.examples), again.loss) == (5, int, 0.25)
    assert again.weights["bias"].tolist() == [7, 8, 9]
    claims = Claims.unpack(Claims(np.array([4]), np.array([0.5]), np.array([2])).pack(), {})
    assert (claims.triple.tolist(), claims.value.dtype) == ([4], np.float32)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"examples": None}, "examples is missing"),
        ({"loss": None}, "loss is missing"),
        ({"weights/bias": None}, "bias is missing"),
        ({"b": np.zeros(1), "a": np.zeros(1)}, "a is not a field of Update"),
        ({"weights/more": np.zeros(3, np.float32)}, "more is not a tensor of the model"),
        ({"examples": np.array(0)}, "examples holds 0, below 1"),
    ],
)
def test_a_message_with_too_little_or_too_much_is_refused(changes, reason):
    assert Update.unpack(update(examples=np.array(1)), SHAPES).examples == 1
    with pytest.raises(RefusedError) as refused:
        Update.unpack(update(**changes), SHAPES)
    assert str(refused.value) == reason


def test_a_site_may_hold_nothing():
    assert Holdings.unpack(Holdings(0).pack(), {}).sentences == 0
    with pytest.raises(RefusedError, match="sentences holds -1, below 0"):
        Holdings.unpack(Holdings(-1).pack(), {})
