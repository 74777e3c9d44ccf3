"""Messages: what fits its declaration passes unchanged, everything else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrel.federation.messages import Message, Model, RefusedError, Update, payload
from fedrel.federation.wire import decode, encode
from fedrel.methods.lazy_mil import Claims, KeyedClaims, Winners
from fedrel.tensors.weights import Rows

SHAPES = {"words.weight": (9, 2), "bias": (3,)}
FLOATS = st.floats(-1e6, 1e6, width=32)


def update(**changes: object) -> dict[str, np.ndarray]:
    rows = Rows(np.array([1, 4], np.int32), np.ones((2, 2), np.float32), 0.5)
    arrays = Update({"words.weight": rows, "bias": np.zeros(3, np.float32)}, 7, 0.25).pack()
    return arrays | changes


def claims(**changes: object) -> dict[str, np.ndarray]:
    arrays = {
        "triple": np.array([0, 3], np.int32),
        "value": np.array([0.5, 1], np.float32),
        "index": np.array([2, 0], np.int32),
    }
    return arrays | changes


@given(
    hnp.arrays(np.float32, (3,), elements=FLOATS),
    st.sets(st.integers(0, 8)).map(sorted),
    st.floats(0, 1),
    st.integers(1, 10**12),
    st.data(),
)
def test_an_update_is_the_same_after_packing_and_unpacking(bias, index, rest, examples, data):
    values = data.draw(hnp.arrays(np.float32, (len(index), 2), elements=FLOATS))
    sent = Update(
        {"words.weight": Rows(np.array(index, np.int32), values, rest), "bias": bias}, examples, -1.5
    )
    arrays = decode(encode(sent.pack()))
    got = Update.unpack(arrays, SHAPES)
    rows = got.weights["words.weight"]
    assert (got.examples, got.loss) == (examples, -1.5)
    np.testing.assert_array_equal(got.weights["bias"], bias)
    np.testing.assert_array_equal(rows.index, index)
    np.testing.assert_array_equal(rows.values, values)
    assert rows.rest == rest
    assert payload(arrays) == payload(sent.pack()) == 3 * 4 + len(index) * (4 + 8) + 8 + 8 + 8


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (update(bias=None), None),
        (
            update(**{"weights/bias": np.array([0, np.nan, 0], np.float32)}),
            "weights/bias holds a value that is not finite",
        ),
        (update(**{"weights/bias": np.array([0, np.inf, 0], np.float32)}), "not finite"),
        (update(**{"weights/bias": np.zeros(4, np.float32)}), r"shape \(4,\), expected 3"),
        (update(**{"weights/bias": np.zeros(3)}), "float64, expected float32"),
        (update(**{"weights/more": np.zeros(3, np.float32)}), "more is not a tensor of the model"),
        (update(**{"weights/words.weight/index": np.array([4, 1], np.int32)}), "not ascending"),
        (update(**{"weights/words.weight/index": np.array([1, 1], np.int32)}), "not ascending"),
        (update(**{"weights/words.weight/index": np.array([1, 9], np.int32)}), "holds 9, above 8"),
        (update(**{"weights/words.weight/values": np.ones((3, 2), np.float32)}), "expected 2 along rows"),
        (update(**{"weights/words.weight/rest": np.array(1.5)}), "above 1"),
        (update(examples=np.array(0)), "examples holds 0, below 1"),
        (update(loss=np.array(np.nan)), "loss holds a value that is not finite"),
        (update(note=np.frombuffer(b"secret", np.uint8)), "note is not a field of Update"),
    ],
)
def test_a_false_update_is_refused_with_the_reason(arrays, reason):
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if reason is None:
        del arrays["weights/bias"]
        reason = "bias is missing"
    with pytest.raises(RefusedError, match=reason.replace("weights/", "")):
        Update.unpack(arrays, SHAPES)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (claims(value=np.array([0.5, 1.5], np.float32)), "above 1"),
        (claims(value=np.array([0.5, -0.1], np.float32)), "below 0"),
        (claims(index=np.array([2], np.int32)), "expected 2 along claims"),
        (claims(triple=np.array(["a", "b"])), "expected int32"),
        (claims(triple=np.array([[0, 3]], np.int32)), "2 dimensions, expected 1"),
    ],
)
def test_false_claims_are_refused(arrays, reason):
    with pytest.raises(RefusedError, match=reason):
        Claims.unpack(arrays, SHAPES)


def test_the_model_is_sent_dense():
    rows = Rows(np.array([1], np.int32), np.ones((1, 2), np.float32), 1.0)
    with pytest.raises(RefusedError, match=r"words\.weight is missing"):
        Model.unpack(Model({"words.weight": rows, "bias": np.zeros(3, np.float32)}).pack(), SHAPES)


def test_no_declared_message_can_hold_text():
    kinds: list[type[Message]] = [Model, Update, Claims, KeyedClaims, Winners]
    dtypes = {getattr(field, "dtype", "float32") for kind in kinds for field in kind.declared().values()}
    assert dtypes <= {"float32", "float64", "int32", "int64", "uint8"}


@given(st.binary(max_size=200))
def test_rubbish_bytes_are_refused(block):
    with pytest.raises(RefusedError):
        decode(block)
