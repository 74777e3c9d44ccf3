"""Several methods and seeds side by side; finished runs are read, stopped ones go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.evaluation.bootstrap import Interval, Units, difference, units_of
from fedrel.files import read_tensors
from fedrel.methods.by_name import method
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.folder import REPAIR, UNITS, MetricsFile, Run, read_json, read_run, write_json
from fedrel.runs.records import ComparisonRow, ComparisonRows, Environment, Result
from fedrel.runs.run_end import ends_at, went_beyond
from fedrel.runs.run_notes import StoppedError, differences
from fedrel.runs.train import Watcher, run

_log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
Watch = Callable[[str, Config], Watcher]
"""Gives the watcher of a run, by its name and config."""
Report = Callable[[Path], object]
"""Writes the report of a run, by its folder."""


def compare(
    config: Config,
    out: Path,
    methods: Sequence[str],
    seeds: int = 1,
    *,
    best: Mapping[str, Settings] | None = None,
    watch: Watch = lambda _, __: Watcher(),
    report: Report | None = None,
) -> list[ComparisonRow]:
    """Run every method with every seed; finished runs are kept, a stopped one goes on where it was.

    Seeds are `seeds` numbers from the config's own. `best` holds settings by method, from a sweep. A method that
    does not exist is refused before anything is trained.
    """
    asked = {
        (name, seed): checked(config, {**(best or {}).get(name, {}), "method": name, "seed": seed})
        for name in methods
        for seed in range(config.seed, config.seed + seeds)
    }
    for (name, seed), chosen in asked.items():
        finished(chosen, run_folder(out, name, seed), watch(f"{name}, seed {seed}", chosen), report)
    folders = [run_folder(out, name, seed) for name, seed in asked]
    _warn_of_other_environments(folders)
    rows = [read_run(folder).row(name) for folder, (name, _) in zip(folders, asked, strict=True)]
    write_json(out / "comparison.json", ComparisonRows(rows=rows))
    return rows


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Where a comparison keeps a run."""
    return out / method / f"seed-{seed}"


def finished(config: Config, folder: Path, watcher: Watcher, report: Report | None = None) -> Result:
    """The result of a run: read if this run is finished in the folder, else trained, from its checkpoint if any."""
    if is_finished(config, folder):
        result: Result = read_json(Result, folder / "result.json")
        watcher.finished(result)
        return result
    return run(config, folder, resume=True, watcher=watcher, report=report)


def is_finished(config: Config, folder: Path) -> bool:
    """Whether this run is finished in the folder, with the result of its last round and not of an earlier end."""
    if not (folder / "result.json").exists():
        return False
    result: Result = read_json(Result, folder / "result.json")
    checkpoint = Checkpoints(folder / "checkpoint", config.shapes_result()).latest()
    if checkpoint is None or checkpoint.round != result.rounds:
        return False
    rounds = MetricsFile(folder / "metrics.jsonl").until(checkpoint.round, checkpoint.metrics)
    return ends_at(config, checkpoint.round, checkpoint.best_round) and went_beyond(config, rounds) is None


class BudgetSpentError(StoppedError):
    """The time that was given for this call is over; every finished round is kept."""


def limited(watch: Watch, budget: float | None) -> Watch:
    """The same display, which ends a run between two rounds once the budget is spent."""
    if budget is None:
        return watch
    end = time.monotonic() + budget

    def watched(name: str, config: Config) -> Watcher:
        if time.monotonic() > end:
            raise BudgetSpentError
        inner = watch(name, config)

        def round_done(one: Any) -> None:
            inner.round_done(one)
            if time.monotonic() > end:
                raise BudgetSpentError

        return replace(inner, round_done=round_done)

    return watched


def difference_if_known(
    ours: Sequence[Units], theirs: Sequence[Units], metric: str, folds: Sequence[str] = ()
) -> Interval | None:
    """The difference of two methods with its interval, given as their runs' answers, by seed in the same order.

    None where one has no run and where the metric cannot be resampled; `UnlikeUnitsError` if they were tested on
    different units.
    """
    if not ours or not theirs:
        return None
    return difference(ours, theirs, metric, folds=folds) if metric in ours[0].metrics else None


def answers_of_run(run: Run) -> Units:
    """A run's answers on the test set, unit by unit."""
    return units_of(read_tensors(run.folder / UNITS, "a run's answers on the test set", REPAIR)[0])


def checked(config: Config, settings: Settings) -> Config:
    """The config with other values of some keys, if there is such a method."""
    chosen = config.with_settings(settings)
    method(chosen.method, chosen.methods)
    return chosen


def _warn_of_other_environments(folders: Sequence[Path]) -> None:
    """Say so if runs that are compared were made in different precisions or on different processors."""
    first, *others = (read_json(Environment, folder / "environment.json") for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        for one in differences(first, other):
            _log.warning("%s was not made like %s: %s", folder, folders[0], one)
