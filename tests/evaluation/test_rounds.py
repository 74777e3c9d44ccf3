from __future__ import annotations

from typing import Any

import pytest

from fedrel.evaluation.tasks import Reached, to_target


def run(*values: float | None) -> list[dict[str, Any]]:
    """A run whose round n sends n bytes up and 10n down."""
    return [
        {
            "round": n,
            "dev": None if f1 is None else {"f1": f1, "auc": 0.0},
            "bytes": {"up": n, "down": 10 * n},
        }
        for n, f1 in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([0.1, 0.5, 0.4, 0.9], 0.5, (2, 3, 30)),  # reaching is enough, and a later fall does not matter
        ([0.1, None, 0.6], 0.5, (3, 6, 60)),  # a round without evaluation still counts and sends
        ([0.1, None], 0.5, None),
        ([], 0.5, None),
        ([0.0], 0.0, (1, 1, 10)),
        ([float("nan"), 0.5], 0.5, (2, 3, 30)),
    ],
)
def test_to_target(values: list[float | None], target: float, expected: tuple[int, int, int] | None) -> None:
    assert to_target(run(*values), "f1", target) == expected
    assert to_target(run(*values), "auc", 0.1) is None


def test_what_was_reached_has_names() -> None:
    assert to_target(run(1.0), "f1", 0.5) == Reached(round=1, up=1, down=10)
