"""How soon is a run good enough? The papers' measure of communication: rounds needed to reach a target."""

from __future__ import annotations

from collections.abc import Sequence


def rounds_to_target(values: Sequence[float | None], target: float) -> int | None:
    """The first round, counted from 1, at which the metric reaches `target`; None if it never does.

    `values` has one entry a round, None where the round was not evaluated.

    >>> rounds_to_target([0.2, None, 0.51, 0.4], target=0.5)
    3
    """
    return next((n for n, value in enumerate(values, 1) if value is not None and value >= target), None)
