"""p(r|s) as a detector of sentences that state their relation, against all pairs counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.bootstrap import JudgedUnits, difference, interval


def judged(unit: list[int], states: list[bool], probability: list[float]) -> JudgedUnits:
    return JudgedUnits(np.array(unit), np.array(states), np.array(probability))


def test_by_hand() -> None:
    # stating .9 and .4 against .4 and .1: above, above, tied, above
    found = judged([0, 0, 1, 2], [True, True, False, False], [0.9, 0.4, 0.4, 0.1])
    assert found.value("detection", np.ones(3, np.int64)) == pytest.approx(3.5 / 4)
    # unit 1 twice, unit 2 never: .9 and .4 against .4 and .4
    assert found.value("detection", np.array([1, 2, 0])) == pytest.approx(3 / 4)
    assert found.value("detection", np.array([1, 0, 0])) == 0.5  # nothing to tell apart


@given(st.integers(0, 10_000))
def test_as_counted_pair_by_pair(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = 12
    states, value = generator.random(count) < 0.5, generator.integers(0, 5, count) / 4
    unit = generator.integers(0, 4, count)
    times = generator.integers(0, 3, 4)
    found = JudgedUnits(np.append(unit, 3), np.append(states, True), np.append(value, 0.3))
    won = pairs = 0.0
    for i in range(count + 1):
        for j in range(count + 1):
            if found.states[i] and not found.states[j]:
                often = times[found.unit[i]] * times[found.unit[j]]
                pairs += often
                higher = found.probability[i] - found.probability[j]
                won += often * ((higher > 0) + (higher == 0) / 2)
    assert found.value("detection", times) == pytest.approx(won / pairs if pairs else 0.5)


def test_intervals_hold_the_mean_and_narrow_with_more_sentences() -> None:
    generator = np.random.default_rng(0)

    def of(count: int, shift: float) -> JudgedUnits:
        states = np.arange(count) % 2 == 0
        return JudgedUnits(np.arange(count), states, generator.normal(size=count) + shift * states)

    few, many = interval([of(40, 1.0)], "detection"), interval([of(800, 1.0), of(800, 1.0)], "detection")
    assert few.low < few.mean < few.high
    assert many.high - many.low < few.high - few.low
    assert many.low < 0.76 < many.high  # the normal distribution function at 1 / sqrt(2)
    better = difference([of(800, 2.0)], [of(800, 0.0)], "detection")
    assert better.sign == 1
