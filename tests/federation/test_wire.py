"""Encoding: what it adds is counted without encoding, to the byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from fedrel.federation.messages import payload
from fedrel.federation.wire import encode, framing

arrays = st.dictionaries(
    st.text(st.characters(categories=("L", "N"), include_characters="./_"), min_size=1, max_size=20),
    st.tuples(
        st.sampled_from(["uint8", "int32", "int64", "float16", "float32", "float64"]),
        array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=40),
    ).map(lambda made: np.zeros(made[1], made[0])),
    max_size=8,
)


@given(arrays)
def test_framing_is_what_encoding_adds(named):
    assert framing(named) == len(encode(named)) - payload(named)
