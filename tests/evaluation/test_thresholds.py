"""The threshold with the best F1, against trying every one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.thresholds import UNTUNED, best_threshold


def f1(probabilities: np.ndarray, facts: np.ndarray, threshold: float) -> float:
    guessed = probabilities >= threshold
    return 2 * (guessed & facts).sum() / max(guessed.sum() + facts.sum(), 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0]), st.booleans()), min_size=1
    )
)
def test_no_other_threshold_is_better(answers: list[tuple[float, bool]]) -> None:
    probabilities = np.array([[value for value, _ in answers]])
    facts = np.array([[right for _, right in answers]])
    found = best_threshold(probabilities, facts)
    if not facts.any():
        assert found == UNTUNED
        return
    tried = [f1(probabilities, facts, at / 1000) for at in range(1001)]
    assert f1(probabilities, facts, found) == max(tried)
    assert 0 <= found <= 1


def test_it_lies_half_way_to_the_next_lower_probability() -> None:
    probabilities = np.array([[0.9, 0.2], [0.6, 0.1]])
    assert best_threshold(probabilities, np.array([[True, False], [True, False]])) == 0.4
    assert best_threshold(np.array([[0.5]]), np.array([[True]])) == 0.25
