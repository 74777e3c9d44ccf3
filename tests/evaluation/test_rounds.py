from __future__ import annotations

import pytest

from fedrel.evaluation.rounds import rounds_to_target


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([0.1, 0.5, 0.4, 0.9], 0.5, 2),  # reaching is enough, and a later fall does not matter
        ([0.1, None, 0.6], 0.5, 3),  # a round without evaluation still counts as a round
        ([0.1, None], 0.5, None),
        ([], 0.5, None),
        ([0.0], 0.0, 1),
        ([float("nan"), 0.5], 0.5, 2),
    ],
)
def test_rounds_to_target(values: list[float | None], target: float, expected: int | None) -> None:
    assert rounds_to_target(values, target) == expected
