"""A table or figure of a paper, run and put beside the paper's numbers.

Each cell is some runs, one a seed, in folders named after their configs, so that exhibits share the runs that they
have in common. A stopped reproduction goes on where it was. What is finished is read: from its folder, or as it was
kept beside the page. Several processes may work at one exhibit: each passes over what another one is at.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedrel.config.check import parse_settings
from fedrel.config.papers import Column, Exhibit, MissingDataError, experiment, find_exhibit
from fedrel.config.schema import Config
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import Interval, RankedUnits
from fedrel.files import InUseError, locked, locked_in_turn
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.compare import BudgetSpentError, Watch, checked, finished, interval, limited
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.kept_runs import KeptRun, KeptRuns
from fedrel.runs.records import Trial, to_target
from fedrel.runs.reproduction_record import Cell, ColumnNote, Ordering, Reproduction, SeedRun, Verdict
from fedrel.runs.round_outcome import DivergedRunError
from fedrel.runs.sweep import combination_folder, halving, halving_rounds, points
from fedrel.runs.train import Watcher

_log = logging.getLogger(__name__)

LATE = 0.1  # a best round within this last share of a run means that more rounds might help
POINTS = 80  # of a curve


@dataclass(frozen=True)
class Job:
    """A run that an exhibit needs; its config is not `settled` before its row's settings are found."""

    row: str
    column: str
    seed: int
    preset: str
    config: Config
    folder: Path
    settled: bool


class Chosen(NamedTuple):
    """What a row's search on dev chose, and all that it tried."""

    settings: dict[str, Any]
    trials: list[Trial]


class Search(NamedTuple):
    """The search for a row's settings, one for all columns that have the same preset."""

    row: str
    preset: str
    config: Config
    folder: Path
    grid: dict[str, list[Any]]
    finalists: int

    @property
    def name(self) -> str:
        """The file of what it found: another grid, length or experiment is another search."""
        length = [self.config.training.rounds, self.config.evaluation.patience]
        facts = json.dumps([self.config.digest(), *length, self.grid, self.finalists], sort_keys=True)
        return f"search-{sha256(facts.encode()).hexdigest()[:10]}.json"

    @property
    def rounds(self) -> int:
        """How many rounds its runs have, if none ends early."""
        return halving_rounds(self.config, self.grid, self.finalists)

    @property
    def folders(self) -> list[Path]:
        """Those of its runs."""
        return [self.run_with(settings) for settings in points(self.grid)]

    def run_with(self, settings: Mapping[str, Any]) -> Path:
        """The folder of its run with these settings."""
        return combination_folder(self.folder, self.config.method, settings)


def page_folder(name: str) -> str:
    """What the folder of an exhibit's page is called."""
    return name.replace("/", "-")


class Plan:
    """An exhibit on this machine: which columns can be run, by which presets, and the runs of each cell.

    `out` is the page's folder, which keeps finished runs in short; `runs` has the folders of runs. Without
    `searched`, the presets' settings stay.
    """

    def __init__(
        self,
        name: str,
        out: Path,
        runs: Path,
        seeds: int,
        only: Sequence[str] = (),
        *,
        searched: bool = True,
        settings: Sequence[str] = (),
    ) -> None:
        self.name, self.seeds, self.only, self.searched = name, seeds, list(only), searched
        self.settings, self._set = list(settings), parse_settings(settings)
        self._runs = runs
        self._kept = KeptRuns(out / "runs")
        self.paper, self.exhibit = find_exhibit(name)
        own = name.rpartition("/")[2]
        self._searching = self.paper.exhibits[self.exhibit.runs_of or own]
        self._columns = [(column, self._note(column)) for column in map(self._with, self.exhibit.columns)]
        self._search_columns = [(one, self._note(one)) for one in map(self._with, self._searching.columns)]
        self.columns = [note for _, note in self._columns]
        known = [column.name for column in self.columns]
        for unknown in set(only) - set(known):
            raise UserError(f"{name} has no column {unknown!r}", hint=nearest(unknown, known))

    @property
    def at_hand(self) -> list[tuple[Column, ColumnNote]]:
        """The columns whose data are here."""
        return [(column, note) for column, note in self._columns if not note.missing]

    @property
    def runnable(self) -> list[tuple[Column, ColumnNote]]:
        """Of those, the columns that were asked for."""
        return [one for one in self.at_hand if not self.only or one[0].name in self.only]

    def jobs(self) -> Iterator[Job]:
        """All runs, the first seed of every cell first, with the settings that are chosen by now."""
        chosen = self.chosen()
        searched = dict(self._searched(chosen))
        for number in range(self.seeds):
            for column, note in self.runnable:
                for row, asked in self.exhibit.rows_of(column).items():
                    key = (row, note.preset)
                    settings = chosen[key].settings if key in chosen else {}
                    config = experiment(column, row, asked, settings, number).config
                    folder = _room(searched.get(config.digest()) or self._folder(note.preset, config), config)
                    settled = key in chosen or not self.grid(row, note)
                    yield Job(row, column.name, config.seed, note.preset, config, folder, settled)

    def finished(self, job: Job) -> KeptRun | None:
        """A run in short, if it is finished."""
        return self._kept.find(job.config, job.folder) if job.settled else None

    def diverged(self, job: Job) -> bool:
        """Whether a run was tried and diverged."""
        return job.settled and self._kept.diverged(job.config)

    def train(self, job: Job, name: str, watcher: Watcher) -> None:
        """Train a run to its end, or until it diverges, which is noted: the others go on."""
        try:
            finished(job.config, job.folder, watcher)
        except DivergedRunError as error:
            _log.warning("%s diverged and is left out: %s", name, error.problem)
            self._kept.keep_divergence(job.config, str(error))

    def difference(self, ours: Sequence[Job], theirs: Sequence[Job], metric: str) -> Interval | None:
        """The interval of a difference between two rows, given as their finished runs (see `interval`).

        Only seeds that both have count: another seed may have another fold of the test set.
        """
        common = {job.seed for job in ours} & {job.seed for job in theirs}
        first, second = (
            [self._kept.units(job.config) for job in own if job.seed in common] for own in (ours, theirs)
        )
        return interval(first, second, metric)

    def precision(self, job: Job) -> list[tuple[float, float]]:
        """A finished run's precision by recall, where the exhibit draws that."""
        if self.exhibit.plot != "precision":
            return []
        units = self._kept.units(job.config)
        if not isinstance(units, RankedUnits):
            hint = 'leave out plot = "precision" of the exhibit'
            raise UserError(f"{self.name}: answers without an order have no precision by recall", hint=hint)
        curve = units.curve(POINTS)
        pairs = zip(curve.recall, curve.precision, strict=True)
        return [(round(recall, 4), round(precision, 4)) for recall, precision in pairs]

    def searches(self) -> Iterator[tuple[Search, bool]]:
        """Each search, and whether it is finished."""
        chosen = self.chosen()
        for one in self._searches():
            yield one, (one.row, one.preset) in chosen

    def search(self, watch: Watch, rows: Sequence[str]) -> None:
        """Find these rows' best settings on dev, from the paper's grid."""
        for one in self._searches():
            if one.row in rows and (one.row, one.preset) not in self.chosen():
                with suppress(InUseError), locked(one.folder):
                    halving(
                        one.config,
                        one.folder,
                        one.grid,
                        [one.config.method],
                        finalists=one.finalists,
                        watch=watch,
                        name=one.name,
                    )

    def grid(self, row: str, note: ColumnNote) -> dict[str, list[Any]]:
        """What is searched for a row of a column: the exhibit's settings and the method's own options."""
        if not self.searched:
            return {}
        shared = (self._searching.instead_search if note.instead else {}) or self._searching.search
        return {**shared, **self._searching.rows[row].search}

    def chosen(self) -> dict[tuple[str, str], Chosen]:
        """The searched settings by row and preset, as far as searches are finished."""
        chosen = {}
        for one in self._searches():
            found = self._kept.search(one.name, one.folder)
            if found is not None and one.config.method in found.best:
                chosen[one.row, one.preset] = Chosen(found.best[one.config.method], found.rows)
        return chosen

    def outdated(self, shown: Reproduction | None) -> list[str]:
        """The rows whose settings in the page are of another search, and that have none of the present one yet."""
        had = {cell.row for cell in shown.cells if cell.settings} if shown else set()
        missing = {one.row for one, done in self.searches() if not done}
        return [row for row in self.exhibit.rows if row in had & missing]

    def _searches(self) -> Iterator[Search]:
        """A search for every row and preset that the asked columns need, on the first column with the preset."""
        wanted = {
            (row, note.preset) for column, note in self.runnable for row in self.exhibit.rows_of(column)
        }
        for column, note in self._search_columns:
            for row, asked in self._searching.rows_of(column).items():
                grid = self.grid(row, note)
                if (row, note.preset) in wanted and not note.missing and grid:
                    wanted.remove((row, note.preset))
                    config = experiment(column, row, asked, {}).config
                    folder = self._folder(note.preset, config, "search")
                    yield Search(row, note.preset, config, folder, grid, self._searching.finalists)

    def _searched(self, chosen: Mapping[tuple[str, str], Chosen]) -> Iterator[tuple[str, Path]]:
        """The runs of the search that are runs of the table, too: the best settings of each row."""
        for one in self._searches():
            if found := chosen.get((one.row, one.preset)):
                yield one.config.with_settings(found.settings).digest(), one.run_with(found.settings)

    def _folder(self, preset: str, config: Config, *inside: str) -> Path:
        named = f"{preset.replace('/', '-')}-{config.method}-{config.digest()[:10]}"
        return self._runs.joinpath(*inside, named)

    def _with(self, column: Column) -> Column:
        """A column with what was set by hand, which counts more than its own settings and less than its rows'."""
        return column.model_copy(update={"set": {**column.set, **self._set}})

    def _note(self, column: Column) -> ColumnNote:
        exhibit, asked_metric = self.exhibit, column.metric or self.exhibit.metric
        try:
            row, asked = next(iter(exhibit.rows.items()))
            found = experiment(column, row, asked, {})
        except MissingDataError as error:
            file = Path(error.file or "")
            missing = f"{error.problem}: {file.parent.name}/{file.name}"  # no path of one machine
            return ColumnNote(name=column.name, preset=column.preset, metric=asked_metric, missing=missing)
        metric = (exhibit.instead_metric if found.instead else None) or asked_metric
        return ColumnNote(
            name=column.name,
            preset=found.preset,
            instead=found.instead,
            metric=metric,
            paper_metric=asked_metric if asked_metric != metric and column.paper else "",
            target=exhibit.instead_target if found.instead else None,
            set=column.set,
        )


def _room(folder: Path, config: Config) -> Path:
    """The folder for a run, or one beside it where a run with more rounds than the config's is kept there."""
    rounds, kept = config.training.rounds, Checkpoints(folder / "checkpoint", config.shapes_result())
    return folder.with_name(f"{folder.name}-{rounds}-rounds") if kept.last_round() > rounds else folder


def reproduce(
    name: str,
    out: Path,
    runs: Path,
    *,
    seeds: int = 3,
    only: Sequence[str] = (),
    rows: Sequence[str] = (),
    budget: float | None = None,
    search: bool = True,
    settings: Sequence[str] = (),
    watch: Watch = lambda _, __: Watcher(),
) -> Reproduction:
    """Run what an exhibit lacks, then write `reproduction.json` into `out`; returns it.

    With `only`, these columns are run and shown, and no others; with `rows`, these rows are run, and the others
    shown as far as they were before, in the present grid. After `budget` seconds no round is begun any more. The
    record has what is finished by then. `settings` change every column's config; a row's own settings stay.
    """
    plan = Plan(name, out, runs, seeds, only, searched=search, settings=settings)
    known = list(plan.exhibit.rows)
    for unknown in set(rows) - set(known):
        raise UserError(f"{name} has no row {unknown!r}", hint=nearest(unknown, known))
    page = out / "reproduction.json"
    shown: Reproduction | None = read_json(Reproduction, page) if page.exists() else None
    if shown and not plan.runnable and any(cell.runs for cell in shown.cells):
        problem = f"the data of {name} are not at hand; its page is left as it is"
        raise UserError(problem, file=page, hint="set FEDREL_DATA to the folder of the corpora")
    for job in plan.jobs():
        checked(job.config, {})
    for row in plan.outdated(shown):
        _log.warning(
            "%s: the page has settings from another search; it is left out until it is searched anew", row
        )
    wanted, watch = rows or known, limited(watch, budget)
    with suppress(BudgetSpentError):
        while _train_missing(plan, wanted, watch):
            pass  # what another process was at when it was passed over may be left now
    out.mkdir(parents=True, exist_ok=True)
    with locked_in_turn(out):  # whoever writes last has read last
        found = collect(plan)
        write_json(page, found)
    return found


def _train_missing(plan: Plan, rows: Sequence[str], watch: Watch) -> bool:
    """Search and train what these rows lack and no other process is at; whether there was anything."""
    plan.search(watch, rows)
    some = False
    for job in plan.jobs():
        if job.row in rows and job.settled and not plan.diverged(job) and plan.finished(job) is None:
            with suppress(InUseError):
                name = f"{job.row}, {job.column}, seed {job.seed}"
                plan.train(job, name, watch(name, job.config))
                some = True
    return some


def collect(plan: Plan) -> Reproduction:
    """The record of the finished runs."""
    exhibit, chosen = plan.exhibit, plan.chosen()
    trained: dict[tuple[str, str], list[tuple[Job, KeptRun]]] = {}
    diverged: dict[tuple[str, str], list[int]] = {}
    for job in plan.jobs():
        if (found := plan.finished(job)) is not None:
            trained.setdefault((job.row, job.column), []).append((job, found))
        elif plan.diverged(job):
            diverged.setdefault((job.row, job.column), []).append(job.seed)
    notes = {note.name: note for note in plan.columns}
    cells = [
        Cell(
            row=row,
            column=column.name,
            paper=column.paper.get(row),
            **_searched(plan, row, notes[column.name], chosen),
            runs=[
                _seed_run(run, exhibit, notes[column.name], plan.precision(job))
                for job, run in trained.get((row, column.name), [])
            ],
            diverged=diverged.get((row, column.name), []),
        )
        for column in exhibit.columns
        for row in exhibit.rows_of(column)
        if not plan.only or column.name in plan.only
    ]
    jobs = {cell: [job for job, _ in own] for cell, own in trained.items()}
    every = [run for own in trained.values() for _, run in own]
    distinct = {run.environment.model_dump_json(): run.environment for run in every}
    return Reproduction(
        name=plan.name,
        title=plan.paper.title,
        about=exhibit.about,
        scale=exhibit.scale,
        better=exhibit.better,
        target=exhibit.target,
        seeds=plan.seeds,
        columns=plan.columns,
        rows=list(exhibit.rows),
        cells=cells,
        orderings=list(_orderings(plan, cells, jobs, notes)),
        dev_metric=every[0].result.primary if every else "",
        only=plan.only,
        settings=plan.settings,
        searched=plan.searched,
        environments=list(distinct.values()),
    )


def _searched(
    plan: Plan, row: str, note: ColumnNote, chosen: Mapping[tuple[str, str], Chosen]
) -> dict[str, Any]:
    """What a cell says of its row's search."""
    found = chosen.get((row, note.preset))
    return {**found._asdict(), "grid": plan.grid(row, note)} if found else {}


def _seed_run(
    run: KeptRun, exhibit: Exhibit, note: ColumnNote, precision: list[tuple[float, float]]
) -> SeedRun:
    result, best, dev = run.result, run.result.best_round or 0, run.dev
    step = -(-len(dev) // POINTS)
    return SeedRun(
        seed=result.seed,
        value=_value(run, exhibit, note),
        best_round=best,
        rounds=result.rounds,
        converged=best <= (1 - LATE) * result.rounds,
        seconds=result.seconds,
        dev=list(dict.fromkeys([*dev[:: max(step, 1)], *dev[-1:]])),
        precision=precision,
    )


def _value(run: KeptRun, exhibit: Exhibit, note: ColumnNote) -> float | None:
    """An exhibit's number of a run; None where the run has none, as one that never reached the target."""
    metric, target = note.metric, note.target or exhibit.target
    if metric == "rounds":
        assert target is not None
        split: Literal["dev", "test"] = "test" if any(one.test for one in run.evaluated) else "dev"
        reached = to_target(run.evaluated, exhibit.target_metric, target, split)
        return None if reached is None else float(reached.round)
    if metric == "bytes":
        return run.uploaded
    named, known = metric.removeprefix("f1/"), run.f1_by_relation
    if named == metric:
        known = run.result.metrics
    if named not in known:
        raise UserError(f"runs of {run.result.method} have no metric {metric!r}", hint=nearest(named, known))
    return known[named]


def _orderings(
    plan: Plan,
    cells: Sequence[Cell],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    notes: Mapping[str, ColumnNote],
) -> Iterator[Ordering]:
    """Every two rows that the paper tells apart, in every column."""
    sign = 1 if plan.exhibit.better == "more" else -1
    for column in plan.exhibit.columns:
        if notes[column.name].target is not None:
            continue
        known = [cell for cell in cells if cell.column == column.name and cell.paper is not None]
        for pair in combinations(known, 2):
            worse, better = sorted(pair, key=lambda cell: sign * (cell.paper or 0))
            if better.paper == worse.paper:
                continue
            first, second = (jobs.get((row, column.name), []) for row in (better.row, worse.row))
            metric = notes[column.name].metric
            ours = _counted(better, worse) if metric == "bytes" else plan.difference(first, second, metric)
            seeds = len({run.seed for run in better.runs} & {run.seed for run in worse.runs})
            yield Ordering(
                column=column.name,
                better=better.row,
                worse=worse.row,
                paper=(better.paper or 0) - (worse.paper or 0),
                ours=ours,
                seeds=seeds,
                verdict=_VERDICTS[0 if ours is None else sign * ours.sign] if seeds else "not run",
            )


def _counted(ours: Cell, theirs: Cell) -> Interval | None:
    """The difference of two rows over common seeds, whose numbers are counted and not estimated: no spread."""
    first, second = ({run.seed: run.value for run in cell.runs} for cell in (ours, theirs))
    pairs = [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]
    known = [one - other for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    mean = fmean(known)
    return Interval(mean=mean, low=mean, high=mean)


_VERDICTS: dict[int, Verdict] = {1: "holds", -1: "fails", 0: "cannot be told"}
