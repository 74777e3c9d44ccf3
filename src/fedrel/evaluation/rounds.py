"""How soon is a run good enough? The papers' measures of communication: rounds and bytes to reach a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Reached(NamedTuple):
    """The first round, counted from 1, whose metric is at the target, and the bytes sent until then."""

    round: int
    up: int  # from the sites
    down: int  # to the sites


def to_target(lines: Iterable[Mapping[str, Any]], metric: str, target: float) -> Reached | None:
    """When a run reached `target` on dev, by its lines of metrics.jsonl; None if it never did.

    Rounds without an evaluation count as rounds all the same.

    >>> rounds = [{"round": n, "dev": {"f1": n / 4}, "bytes": {"up": 10, "down": 30}} for n in (1, 2, 3)]
    >>> to_target(rounds, "f1", 0.5)
    Reached(round=2, up=20, down=60)
    """
    up = down = 0
    for line in lines:
        up, down = up + line["bytes"]["up"], down + line["bytes"]["down"]
        if line["dev"] is not None and line["dev"][metric] >= target:
            return Reached(line["round"], up, down)
    return None
