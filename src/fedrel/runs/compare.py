"""Several methods and seeds side by side; and finished runs in short, kept beside the page that shows them.

A run folder has checkpoints and a model: tens of megabytes that nobody commits. A page needs the result, the rounds
that were evaluated and, for intervals, the answers on the test set. With these in the page's own folder, a
reproduction goes on in another clone of the repository, and its page can be made again without training.
"""

from __future__ import annotations

import logging
import lzma
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Interval, Units, difference, units_of
from fedrel.evaluation.outcome import Record
from fedrel.files import atomic_file, write_text
from fedrel.methods.by_name import method
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.folder import UNITS, Run, read_json, read_run, write_json
from fedrel.runs.records import ComparisonRow, ComparisonRows, Environment, Result, Round
from fedrel.runs.run_notes import StoppedError, differences
from fedrel.runs.train import Watcher, is_over, run

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
    _say_if_made_unlike(folders)
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
    return is_over(config, checkpoint.round, checkpoint.best_round)


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


def interval(ours: Sequence[Units], theirs: Sequence[Units], metric: str) -> Interval | None:
    """The interval of a difference between two methods, given as their runs' answers, by seed in the same order.

    None where one has no run, and where the metric cannot be resampled.
    """
    if not ours or not theirs:
        return None
    return difference(ours, theirs, metric) if metric in ours[0].metrics else None


def answers_of_run(run: Run) -> Units:
    """A run's answers on the test set, unit by unit."""
    from safetensors.numpy import load_file

    return units_of(load_file(run.folder / UNITS))


def checked(config: Config, settings: Settings) -> Config:
    """The config with other values of some keys, if there is such a method."""
    chosen = config.with_settings(settings)
    method(chosen.method, chosen.methods)
    return chosen


class KeptRun(Record):
    """What a page takes from a run."""

    result: Result
    environment: Environment
    evaluated: list[Round]
    """The rounds that were evaluated, without what single sites did in them."""
    f1_by_relation: dict[str, float] = {}
    uploaded: float | None = None
    """Bytes that an active site sent in a round, on average."""

    @property
    def dev(self) -> list[tuple[int, float]]:
        """The dev metric by round."""
        found = ((one.round, (one.dev or {}).get(self.result.primary)) for one in self.evaluated)
        return [(number, value) for number, value in found if value is not None]


class KeptRuns:
    """A page's folder of them: two files a run, named after its method, its seed and the digest of its config.

    A run that another page beside this one keeps is found there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, config: Config, run: Path) -> KeptRun | None:
        """The finished run of a config, as it was kept; one that is finished in its folder is kept now."""
        _, found = self._found(config)
        return found or (self._keep(config, run) if is_finished(config, run) else None)

    def diverged(self, config: Config) -> bool:
        """Whether the run of a config was tried and diverged; it would do so again."""
        note = _divergence(self._folder / _kept_name(config))
        return note.exists() or any(self._beside(note.name))

    def keep_divergence(self, config: Config, said: str) -> None:
        """Note that the run of a config diverged, and what it said."""
        write_text(_divergence(self._folder / _kept_name(config)), f"{said}\n")

    def units(self, config: Config) -> Units:
        """A kept run's answers on the test set."""
        from safetensors.numpy import load

        kept, _ = self._found(config)
        path = _units_path(kept)
        try:
            return units_of(load(lzma.decompress(path.read_bytes())))
        except (OSError, lzma.LZMAError) as error:
            hint = f"delete {kept.name} beside it, and the run is made again"
            raise UserError(f"cannot be read: {error}", file=path, hint=hint) from error

    def _keep(self, config: Config, folder: Path) -> KeptRun:
        run = read_run(folder)
        short = {"at_sites", "active", "watched", "class_distances"}
        found = KeptRun(
            result=run.result,
            environment=Environment.model_validate(run.environment),
            evaluated=[Round(**one.model_dump(exclude=short)) for one in run.rounds if one.dev or one.test],
            f1_by_relation={}
            if run.classes is None
            else {one.relation: one.f1 for one in run.classes.per_class},
            uploaded=run.per_site_and_round.up if run.per_site_and_round else None,
        )
        own = self._folder / _kept_name(config)
        with atomic_file(_units_path(own)) as path:
            path.write_bytes(lzma.compress((folder / UNITS).read_bytes()))
        write_json(own, found, indent=None)
        return found

    def _found(self, config: Config) -> tuple[Path, KeptRun | None]:
        """The file of a run that is long enough for the config, here or beside another page, and what it says."""
        own = self._folder / _kept_name(config)
        for path in (own, *self._beside(own.name)):
            if path.exists():
                found: KeptRun = read_json(KeptRun, path)
                if is_over(config, found.result.rounds, found.result.best_round or 0):
                    return path, found
        return own, None

    def _beside(self, name: str) -> list[Path]:
        """The files of this name that pages beside this one keep."""
        return sorted(self._folder.parent.parent.glob(f"*/{self._folder.name}/{name}"))


def _kept_name(config: Config) -> str:
    return f"{config.method}-seed-{config.seed}-{config.digest()[:10]}.json"


def _units_path(kept: Path) -> Path:
    return kept.with_suffix(".units.xz")


def _divergence(kept: Path) -> Path:
    return kept.with_suffix(".diverged.txt")


def _say_if_made_unlike(folders: Sequence[Path]) -> None:
    """Say so if runs that are compared were made in different precisions or on different processors."""
    first, *others = (read_json(Environment, folder / "environment.json") for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        for one in differences(first, other):
            _log.warning("%s was not made like %s: %s", folder, folders[0], one)
