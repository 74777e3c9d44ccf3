"""Fixed point: sums are those of the numbers up to the stated step, and cannot overflow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrel.federation.summands import LARGEST_SUM, FixedPoint


@given(
    st.integers(1, 2000),
    st.floats(1e-3, 1e3),
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20),
    st.floats(0.01, 1),
)
def test_a_number_is_off_by_less_than_a_step(sites, limit, numbers, share):
    fixed = FixedPoint(limit, sites)
    values = np.float32(numbers) * np.float32(limit)
    found, clipped = fixed.encode(values, share, np.random.default_rng(1))
    expected = share * np.clip(values.astype(np.float64), -limit, limit)
    np.testing.assert_allclose(fixed.decode(found), expected, rtol=0, atol=fixed.step * 1.0001)
    assert clipped == np.count_nonzero(np.abs(values.astype(np.float64)) > limit)


@given(st.integers(1, 5000))
def test_a_sum_of_the_largest_numbers_does_not_overflow(sites):
    fixed = FixedPoint(2.0, sites)
    for extreme in (9.0, -9.0):
        found, clipped = fixed.encode(np.float32([extreme]), 1.0, np.random.default_rng(0))
        total = np.zeros(1, np.uint32)
        total += np.uint32(int(found[0]) * sites % 2**32)
        assert clipped == 1
        assert abs(int(total.view(np.int32)[0])) <= LARGEST_SUM
        np.testing.assert_allclose(fixed.decode(total), [np.sign(extreme) * 2.0 * sites], rtol=1e-12)


def test_rounding_is_right_on_average():
    fixed = FixedPoint(1.0, 2**28)  # seven levels
    numbers = np.full(200_000, 0.3, np.float32)
    found, _ = fixed.encode(numbers, 1.0, np.random.default_rng(5))
    decoded = fixed.decode(found)
    assert len(np.unique(decoded)) == 2
    assert abs(decoded.mean() - 0.3) < 1e-3
