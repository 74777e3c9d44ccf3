"""Differences: between methods, paired over seeds and with an interval; between two runs, in all that they say.

Of methods the best is compared with each other one. Of runs the settings, environments and results are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Interval
from fedrel.runs.compare import answers_of_run, interval
from fedrel.runs.folder import UNITS, Run
from fedrel.studio import formatting as fmt
from fedrel.studio.formatting import Spread
from fedrel.studio.live.run_index import Row


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better one method is than another, over the seeds that both have."""

    better: str
    worse: str
    metric: str
    seeds: list[int]
    spread: Spread | None  # of the differences, seed by seed
    interval: Interval | None
    why: str = ""  # there is no interval

    @property
    def verdict(self) -> str:
        """Whether it can be told from chance."""
        if self.interval is None:
            return self.why
        return "clear" if self.interval.sign else "cannot be told from chance"


def differences(runs: Mapping[str, Sequence[Run]]) -> list[Difference]:
    """The method with the best mean against every other one; none where there is only one."""
    first = next((run for own in runs.values() for run in own), None)
    if first is None or len(runs) < 2:
        return []
    metric = first.result.primary
    means = {name: Spread.of([run.result.metrics.get(metric) for run in own]) for name, own in runs.items()}
    known = {name: spread.mean for name, spread in means.items() if spread is not None}
    best = max(known, key=lambda name: known[name], default=None)
    if best is None:
        return []
    order = sorted((name for name in known if name != best), key=lambda name: -known[name])
    return [_difference(best, other, metric, runs[best], runs[other]) for other in order]


def _difference(
    better: str, worse: str, metric: str, ours: Sequence[Run], theirs: Sequence[Run]
) -> Difference:
    mine, others = ({run.result.seed: run for run in own} for own in (ours, theirs))
    seeds = sorted(mine.keys() & others.keys())
    paired = [mine[seed] for seed in seeds], [others[seed] for seed in seeds]
    values = [
        (one.result.metrics.get(metric), other.result.metrics.get(metric))
        for one, other in zip(*paired, strict=True)
    ]
    spread = Spread.of([a - b for a, b in values if a is not None and b is not None])
    found, why = _interval(paired, metric)
    return Difference(better, worse, metric, seeds, spread, found, why)


def _interval(paired: tuple[list[Run], list[Run]], metric: str) -> tuple[Interval | None, str]:
    if not paired[0]:
        return None, "they have no seed in common"
    if not all((run.folder / UNITS).exists() for own in paired for run in own):
        return None, f"a run has no {UNITS}"
    try:
        first, second = ([answers_of_run(run) for run in own] for own in paired)
        found = interval(first, second, metric)
    except ValueError:
        return None, "they were not tested on the same data"
    return found, "" if found else "this metric cannot be resampled"


@dataclass(frozen=True, slots=True)
class Line:
    """What one run says and what the other says."""

    name: str
    first: str
    second: str


def run_difference(first: tuple[Row, Run], second: tuple[Row, Run]) -> dict[str, Any]:
    """The values of `difference.html`."""
    rows, runs = (first[0], second[0]), (first[1], second[1])
    configs = [fmt.flatten(_config(run)) for run in runs]
    environments = [fmt.flatten(run.environment) for run in runs]
    results = [_result(run) for run in runs]
    return {
        "title": "Two runs, side by side",
        "setting": "",
        "rows": rows,
        "results": _lines(*results, alike=True),
        "settings": _lines(*configs),
        "environment": _lines(*environments),
    }


def _config(run: Run) -> dict[str, Any]:
    try:
        return tomllib.loads(run.config)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"config.toml is not TOML: {error}", hint="The other runs can be looked at."
        ) from error


def _result(run: Run) -> dict[str, str]:
    result = run.result
    return {
        **{fmt.label(name): fmt.share(value) for name, value in result.metrics.items()},
        **{f"Best {fmt.label(name)} on dev": fmt.share(value) for name, value in result.dev_metric.items()},
        "Best round": fmt.count(result.best_round),
        "Rounds": fmt.count(result.rounds),
        "Sent by sites": fmt.size(result.bytes.up),
        "Sent to sites": fmt.size(result.bytes.down),
        "Time": fmt.duration(result.seconds),
    }


def _lines(first: dict[str, str], second: dict[str, str], *, alike: bool = False) -> list[Line]:
    """What is not the same in both; or everything, in the order of the first."""
    names = dict.fromkeys([*first, *second])
    lines = [Line(name, first.get(name, fmt.NOTHING), second.get(name, fmt.NOTHING)) for name in names]
    return [line for line in lines if alike or line.first != line.second]
