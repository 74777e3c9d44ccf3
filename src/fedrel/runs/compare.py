"""Several methods and seeds side by side: `compare`, and `sweep`, which finds each method's settings on dev."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.methods.registry import method
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.environment import differences
from fedrel.runs.folder import read_json, read_run, write_json
from fedrel.runs.records import ComparisonRow, ComparisonRows, Environment, Result, Sweep, Trial
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
        (name, seed): _checked(config, {**(best or {}).get(name, {}), "method": name, "seed": seed})
        for name in methods
        for seed in range(config.seed, config.seed + seeds)
    }
    for (name, seed), chosen in asked.items():
        finished(chosen, run_folder(out, name, seed), watch(f"{name}, seed {seed}", chosen), report)
    folders = [run_folder(out, name, seed) for name, seed in asked]
    _say_if_made_unlike(folders)
    rows = [read_run(folder).row(name) for folder, (name, _) in zip(folders, asked, strict=True)]
    write_json(out / "comparison.json", ComparisonRows(rows=rows))
    return rows


def sweep(
    config: Config,
    out: Path,
    grid: Mapping[str, Sequence[Any]],
    methods: Sequence[str],
    *,
    watch: Watch = lambda _, __: Watcher(),
    report: Report | None = None,
) -> Sweep:
    """Run every combination of the grid for every method; the best of each on dev goes to `sweep.json`."""
    if not grid:
        raise UserError("nothing to sweep", hint="give --grid key=v1,v2, or a [sweep] section in the config")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    asked = [
        (name, settings, _checked(config, {**settings, "method": name}))
        for name in methods
        for settings in combinations
    ]
    trials = []
    for name, settings, chosen in asked:
        called = ",".join(f"{key}={value}" for key, value in settings.items())
        result = finished(chosen, out / name / called, watch(f"{name}, {called}", chosen), report)
        (metric, value), *_ = result.dev_metric.items()
        trials.append(
            Trial(method=name, settings=settings, metric=metric, dev=value, to_target=result.to_target)
        )
    best = {
        name: max((one for one in trials if one.method == name), key=lambda one: one.dev).settings
        for name in methods
    }
    found = Sweep(rows=trials, best=best)
    write_json(out / "sweep.json", found)
    return found


def best_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Each method's best settings, from a sweep's folder."""
    if not (folder / "sweep.json").exists():
        raise UserError("holds no finished sweep", file=folder, hint="run `fedrel sweep` first")
    found: Sweep = read_json(Sweep, folder / "sweep.json")
    return found.best


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Where a comparison keeps a run."""
    return out / method / f"seed-{seed}"


def finished(config: Config, folder: Path, watcher: Watcher, report: Report | None = None) -> Result:
    """The result of a run: read if this run is finished in the folder, else trained, from its checkpoint if any."""
    done = folder / "result.json"
    if done.exists():
        checkpoint = Checkpoints(folder / "checkpoint", config.shapes_result()).latest()
        if checkpoint is not None and checkpoint.round == config.training.rounds:
            result: Result = read_json(Result, done)
            watcher.finished(result)
            return result
    return run(config, folder, resume=True, watcher=watcher, report=report)


def _say_if_made_unlike(folders: Sequence[Path]) -> None:
    """Say so if runs that are compared were made in different precisions or on different processors."""
    first, *others = (read_json(Environment, folder / "environment.json") for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        for difference in differences(first, other):
            _log.warning("%s was not made like %s: %s", folder, folders[0], difference)


def _checked(config: Config, settings: Settings) -> Config:
    """The config with other values of some keys, if there is such a method."""
    chosen = config.with_settings(settings)
    method(chosen.method, chosen.methods)
    return chosen
