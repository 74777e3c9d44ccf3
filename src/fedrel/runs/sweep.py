"""Search settings on dev: every combination of a grid to the end, or by successive halving."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.files import ELSEWHERE
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.compare import Report, Settings, Watch, checked, finished
from fedrel.runs.folder import MetricsFile, read_json, write_json
from fedrel.runs.records import Reached, Result, Sweep, Trial, last_of_each, to_target
from fedrel.runs.resuming import refuse_if_longer
from fedrel.runs.round_outcome import DivergedRunError
from fedrel.runs.train import Watcher

SWEEP = "sweep.json"
DIVERGED = -1.0  # below every dev metric
FINALISTS = 3  # combinations that halving trains to the end, at most


def sweep(
    config: Config,
    out: Path,
    grid: Mapping[str, Sequence[Any]],
    methods: Sequence[str],
    *,
    seeds: int = 1,
    watch: Watch = lambda _, __: Watcher(),
    report: Report | None = None,
) -> Sweep:
    """Run every combination of the grid for every method; the best of each on dev goes to `sweep.json`.

    With several seeds, a combination counts by the mean of its runs.
    """
    trials = []
    for one in _combinations(config, out, grid, methods, seeds):
        results = [_trained(c, f, watch(_called(one, c), c), report) for c, f in one.runs]
        values = [_best_on_dev(result) for result in results]
        reached = [None if result is None else result.to_target for result in results]
        trials.append(_trial(one, values, reached if config.evaluation.target else []))
    return _written(out / SWEEP, methods, trials)


def halving(
    config: Config,
    out: Path,
    grid: Mapping[str, Sequence[Any]],
    methods: Sequence[str],
    *,
    seeds: int = 1,
    finalists: int = FINALISTS,
    watch: Watch = lambda _, __: Watcher(),
    name: str = SWEEP,
) -> Sweep:
    """Successive halving (Jamieson and Talwalkar 2016): as `sweep`, at a fraction of the rounds.

    All combinations are trained for a few rounds, the better half for twice as many, and so on, until the last
    `finalists` or fewer have all `training.rounds`. Every method gets the same number of rounds in all. The file
    `name` in `out` has what was found; with other names, searches of several grids share the runs in `out`.
    """
    if "training.rounds" in grid:
        problem = (
            "training.rounds cannot be searched by halving, which itself gives fewer rounds to what is worse"
        )
        raise UserError(problem, hint="leave it out of the grid, or search without --halving")
    asked = _combinations(config, out, grid, methods, seeds)
    trials = []
    for method in methods:
        left = [one for one in asked if one.method == method]
        for rounds in _rungs(len(left), config, finalists):
            tried = []
            for one in left:
                found = [_after(c, f, rounds, watch(_called(one, c), c)) for c, f in one.runs]
                values, reached = [dev for dev, _ in found], [when for _, when in found]
                tried.append(_trial(one, values, reached if config.evaluation.target else [], rounds))
            trials += tried
            order = sorted(range(len(left)), key=lambda place: -tried[place].dev)
            left = [left[place] for place in order[: _better_half(len(left))]]
    return _written(out / name, methods, trials)


def halving_rounds(config: Config, grid: Mapping[str, Sequence[Any]], finalists: int) -> int:
    """How many rounds `halving` trains for one method and seed, if none of its runs ends early."""
    left, before, total = len(points(grid)), 0, 0
    for rounds in _rungs(left, config, finalists):
        total += left * (rounds - before)
        left, before = _better_half(left), 0 if config.training.follows_run else rounds
    return total


def best_of(folder: Path, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """These methods' best settings, from a sweep's folder; those that it did not search have none."""
    if not (folder / SWEEP).exists():
        raise UserError("holds no finished sweep", file=folder, hint="run `fedrel sweep` first")
    found: Sweep = read_json(Sweep, folder / SWEEP)
    for lost in ({one.method for one in found.rows} - found.best.keys()).intersection(methods):
        problem = f"every combination of {lost} diverged"
        raise UserError(problem, file=folder / SWEEP, hint="search lower learning rates, or leave it out")
    return found.best


def points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def combination_folder(out: Path, method: str, settings: Settings) -> Path:
    """Where a sweep keeps the run of a method with these settings, for the first seed."""
    return out / method / _name(settings)


def _name(settings: Settings) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())


class _Combination(NamedTuple):
    """One point of the grid for one method, and its run for each seed: config and folder."""

    method: str
    values: tuple[tuple[str, Any], ...]
    runs: tuple[tuple[Config, Path], ...]

    @property
    def called(self) -> str:
        return _name(dict(self.values))


def _combinations(
    config: Config, out: Path, grid: Mapping[str, Sequence[Any]], methods: Sequence[str], seeds: int
) -> list[_Combination]:
    """All points of the grid for all methods, every config checked."""
    if not grid or not all(grid.values()):
        raise UserError("nothing to sweep", hint="give --grid key=v1,v2, or a [sweep] section in the config")
    if wrong := {"method", "seed"} & grid.keys():
        problem = f"{min(wrong)} cannot be searched like a setting"
        raise UserError(problem, hint="give --methods or --seeds instead")
    found = []
    for name in methods:
        for settings in points(grid):
            point = _Combination(name, tuple(settings.items()), ())
            folder = combination_folder(out, name, settings)
            runs = [
                (
                    checked(config, {**settings, "method": name, "seed": config.seed + number}),
                    folder / f"seed-{config.seed + number}" if number else folder,
                )
                for number in range(seeds)
            ]
            found.append(point._replace(runs=tuple(runs)))
    return found


def _called(one: _Combination, config: Config) -> str:
    seed = f", seed {config.seed}" if len(one.runs) > 1 else ""
    return f"{one.method}, {one.called}{seed}"


def _trial(
    one: _Combination, values: Sequence[float], reached: Sequence[Reached | None], rounds: int | None = None
) -> Trial:
    metric = one.runs[0][0].evaluation.measure
    return Trial(
        method=one.method,
        settings=dict(one.values),
        metric=metric,
        dev=fmean(values),
        seeds=list(values),
        reached=list(reached),
        rounds=rounds,
    )


def _written(file: Path, methods: Sequence[str], trials: Sequence[Trial]) -> Sweep:
    """Write a sweep: a method's best are the settings with the highest dev metric of those that went furthest.

    Settings with which a seed diverged in the end are never the best; a method that has no others has none.
    """
    best = {}
    for name in methods:
        last = last_of_each([one for one in trials if one.method == name])
        whole = [one for one in last if DIVERGED not in one.seeds]
        if whole:
            best[name] = max(whole, key=lambda one: (one.rounds or 0, one.dev)).settings
    found = Sweep(rows=list(trials), best=best)
    write_json(file, found, seal=True)
    return found


def _rungs(count: int, config: Config, finalists: int) -> list[int]:
    """How many rounds the combinations of each rung are trained for: all in the last, half in the one before, …

    Each ends with a round that is evaluated in any case: a run is measured at the same rounds, paused or not.
    """
    every, rungs = config.evaluation.every, [config.training.rounds]
    while count > finalists and rungs[0] > every:
        rungs.insert(0, max(rungs[0] // 2 // every, 1) * every)
        count = _better_half(count)
    return rungs


def _better_half(count: int) -> int:
    return max(-(-count // 2), 1)


def _trained(config: Config, folder: Path, watcher: Watcher, report: Report | None = None) -> Result | None:
    """A finished run, or None if it diverges: the others of the grid go on."""
    try:
        return finished(config, folder, watcher, report)
    except DivergedRunError:
        return None


def _best_on_dev(result: Result | None) -> float:
    return DIVERGED if result is None else next(iter(result.dev_metric.values()))


def _after(config: Config, folder: Path, rounds: int, watcher: Watcher) -> tuple[float, Reached | None]:
    """The best dev metric within so many rounds, and when the target was reached; trained on if need be.

    The metric is `DIVERGED` if the run cannot go so far. A learning rate that follows the run needs its whole
    schedule in every rung, so that each rung is another run.
    """
    if config.training.follows_run and rounds < config.training.rounds:
        folder = folder / f"{rounds}-rounds"
    own = config.with_settings({"training.rounds": rounds})
    trained = Checkpoints(folder / "checkpoint", own.shapes_result()).latest()
    if trained is None or trained.round < rounds:
        result = _trained(own, folder, watcher)
        return _best_on_dev(result), None if result is None else result.to_target
    metrics = MetricsFile(folder / "metrics.jsonl").until(trained.round, trained.metrics)
    refuse_if_longer(config.with_settings({"training.rounds": trained.round}), metrics, folder)
    within, asked = metrics[:rounds], config.evaluation
    measured = [(one.dev or {}).get(asked.measure) for one in within]
    if measured[-1] is None:
        problem = f"has more rounds than {rounds}, after which it was not evaluated"
        raise UserError(problem, file=folder, hint=f"search with this run's evaluation.every, or {ELSEWHERE}")
    reached = (
        None if asked.target is None else to_target(within, asked.measure, asked.target, asked.target_on)
    )
    return max(value for value in measured if value is not None), reached
