"""In what two runs differ: the settings of their configs, their environments, and their results."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from fedrel.errors import UserError
from fedrel.runs.folder import Run
from fedrel.studio import formatting as fmt
from fedrel.studio.live.run_index import Row


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
