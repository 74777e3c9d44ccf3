"""One run in a comparison, as `comparison.json` has it."""

from __future__ import annotations

from typing import TypedDict

from fedrel.runs.records import Run


class ByteCounts(TypedDict):
    """Bytes from the sites to the coordinator, and back."""

    up: float
    down: float


class SiteBytes(ByteCounts):
    """The same of one site in one round, and what encoding added to what it sent."""

    framing: float


class ToTarget(ByteCounts):
    """The first round at the target, and the bytes until then."""

    round: int


class SiteScores(TypedDict):
    """A metric over a run's sites."""

    metric: str
    worst: float
    spread: float


class Row(TypedDict):
    """A run, under the names of its `result.json` where it has them there."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: ByteCounts
    per_site_and_round: SiteBytes | None
    seconds: float
    selection_precision: float | None
    target: dict[str, float] | None
    to_target: ToTarget | None
    sites: SiteScores | None


def row(method: str, run: Run) -> Row:
    """The row of one run, under the name that the comparison gives its method."""
    result = run.result
    reached, each = result.to_target, run.per_site_and_round
    return {
        "method": method,
        "seed": result.seed,
        "metrics": dict(result.metrics),
        "rounds": result.rounds,
        "bytes": {"up": result.bytes.up, "down": result.bytes.down},
        "per_site_and_round": {"up": each.up, "down": each.down, "framing": each.framing} if each else None,
        "seconds": result.seconds,
        "selection_precision": result.selection_precision,
        "target": None if run.target is None else {result.primary: run.target},
        "to_target": {"round": reached.round, "up": reached.up, "down": reached.down} if reached else None,
        "sites": _sites(run),
    }


def _sites(run: Run) -> SiteScores | None:
    sites = run.result.sites
    if sites is None or sites.fairness is None:
        return None
    return {"metric": sites.metric, "worst": sites.fairness.worst, "spread": sites.fairness.spread}
