"""Poisson sampling is really Poisson, and the operating system's numbers are what they should be."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.privacy.poisson import SeededRandomness, SystemRandomness, poisson_batches
from fedrel.seeding import numpy_generator

SOURCES = [SeededRandomness(numpy_generator(1, "test")), SystemRandomness()]


@pytest.mark.parametrize("source", SOURCES, ids=["seeded", "system"])
def test_each_example_is_in_a_step_by_itself(source):
    """Sizes have the binomial's mean and variance, some steps are empty, and two examples meet by chance."""
    examples, rate, steps = 8, 0.2, 20_000
    batches = list(poisson_batches(examples, rate, steps, source))
    inside = np.zeros((steps, examples))
    for step, batch in enumerate(batches):
        assert (np.diff(batch) > 0).all()
        inside[step, batch] = 1
    sizes = inside.sum(1)
    assert sizes.mean() == pytest.approx(examples * rate, abs=0.05)
    assert sizes.var() == pytest.approx(examples * rate * (1 - rate), rel=0.06)
    assert (sizes == 0).mean() == pytest.approx((1 - rate) ** examples, abs=0.02)
    np.testing.assert_allclose(inside.mean(0), rate, atol=0.02)
    together = inside.T @ inside / steps
    np.testing.assert_allclose(together[~np.eye(examples, dtype=bool)], rate**2, atol=0.01)
    again = (inside[1:] * inside[:-1]).mean()  # of one step and the next
    assert again == pytest.approx(rate**2, abs=0.01)


def test_a_rate_of_1_takes_everything():
    assert [batch.tolist() for batch in poisson_batches(3, 1.0, 2, SystemRandomness())] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("count", [0, 1, 7])
def test_as_many_normal_numbers_as_are_asked_for(count):
    for source in SOURCES:
        numbers = source.normal(count)
        assert numbers.shape == (count,) and numbers.dtype == np.float32


def test_the_systems_normal_numbers_have_the_right_tails_and_never_come_again():
    numbers = SystemRandomness().normal(400_000).astype(float)
    assert np.abs(numbers).mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.005)
    assert numbers.var() == pytest.approx(1, abs=0.015) and abs(numbers.mean()) < 0.01
    assert (np.abs(numbers) > 3).mean() == pytest.approx(0.0027, abs=0.0005)
    halves = numbers[:200_000], numbers[200_000:]  # they come in pairs, of one radius and one angle each
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.012 and abs(np.corrcoef(*np.square(halves))[0, 1]) < 0.012
    assert not np.array_equal(SystemRandomness().normal(10), SystemRandomness().normal(10))
