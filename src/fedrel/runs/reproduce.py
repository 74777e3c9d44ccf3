"""A table or figure of a paper, run and put beside the paper's numbers.

A stopped reproduction goes on where it was. Several processes may work at one exhibit: each passes over what
another one is at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedrel.config.papers import Exhibit
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import Interval
from fedrel.files import InUseError, locked_in_turn
from fedrel.runs.compare import BudgetSpentError, Watch, checked, limited
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import POINTS, Chosen, Job, Plan
from fedrel.runs.records import to_target
from fedrel.runs.reproduction_record import (
    Cell,
    ColumnNote,
    Difference,
    Ordering,
    Reproduction,
    SeedRun,
    Verdict,
)
from fedrel.runs.train import Watcher

_log = logging.getLogger(__name__)

SEEDS = 3  # of a page that has none yet, where nobody says how many
LATE = 0.1  # a best round within this last share of a run means that more rounds might help


def reproduce(
    name: str,
    out: Path,
    runs: Path,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    rows: Sequence[str] = (),
    budget: float | None = None,
    search: bool = True,
    settings: Sequence[str] = (),
    watch: Watch = lambda _, __: Watcher(),
) -> Reproduction:
    """Run what an exhibit lacks, then write `reproduction.json` into `out`; returns it.

    Only these columns (`only`), rows and seeds are run; what the page had before stays on it. Without `seeds`, as
    many are run as the page has, or `SEEDS`. After `budget` seconds no round is begun any more, and the record has
    what is finished by then. `settings` change every column's config; a row's own settings stay.
    """
    shown = shown_on(out)
    seeds = seeds or seeds_for(shown)
    plan = Plan(name, out, runs, seeds, only, searched=search, settings=settings)
    if shown is not None:
        both = _columns_of_both(plan, shown)
        plan = Plan(name, out, runs, max(seeds, shown.seeds), both, searched=search, settings=settings)
    wanted = _Wanted(rows or list(plan.exhibit.rows), only or [note.name for note in plan.columns], seeds)
    for unknown in set(rows) - plan.exhibit.rows.keys():
        raise UserError(f"{name} has no row {unknown!r}", hint=nearest(unknown, plan.exhibit.rows))
    if not any(column.name in wanted.columns for column, _ in plan.runnable):
        get = "; ".join(["set FEDREL_DATA to the folder of the corpora", *plan.missing()])
        raise UserError(f"the data of {name} are not at hand", file=_page(out) if shown else None, hint=get)
    for job in plan.jobs():
        checked(job.config, {})
    for row in plan.outdated(shown):
        _log.warning(
            "%s: the page has settings from another search; it is left out until it is searched anew", row
        )
    with locked_in_turn(out):
        pass  # where it cannot be written, it is said before training
    watch = limited(watch, budget)
    with suppress(BudgetSpentError):
        while _train_missing(plan, wanted, watch):
            pass  # what another process was at when it was passed over may be left now
    with locked_in_turn(out):  # whoever writes last has read last
        found, before = collect(plan), shown.finished if shown else 0
        if found.finished < before:
            kept = f"it has {before} runs, and of what is asked now {found.finished} are finished"
            _log.warning("%s is left as it is: %s; delete it to begin it anew", _page(out), kept)
        else:
            write_json(_page(out), found)
    return found


def shown_on(out: Path) -> Reproduction | None:
    """What a page has, if there is one."""
    hint = "delete it: it is made again from the runs that are kept"
    return read_json(Reproduction, _page(out), hint=hint) if _page(out).exists() else None


def seeds_for(shown: Reproduction | None) -> int:
    """How many seeds an exhibit has where nobody says it."""
    return shown.seeds if shown else SEEDS


def _page(out: Path) -> Path:
    return out / "reproduction.json"


def _columns_of_both(plan: Plan, shown: Reproduction) -> list[str]:
    """The columns that are asked for and those that the page has; none stands for all."""
    if not plan.only or not shown.only:
        return []
    return [note.name for note in plan.columns if note.name in {*plan.only, *shown.only}]


class _Wanted(NamedTuple):
    """What a command trains: these rows and columns, and the first so many seeds."""

    rows: Sequence[str]
    columns: Sequence[str]
    seeds: int

    def has(self, job: Job) -> bool:
        return job.row in self.rows and job.column in self.columns and job.number < self.seeds


def _train_missing(plan: Plan, wanted: _Wanted, watch: Watch) -> bool:
    """Search and train what is wanted and no other process is at; whether there was anything."""
    plan.search(watch, wanted.rows, wanted.columns)
    some = False
    for job in plan.jobs():
        if wanted.has(job) and job.settled and not plan.diverged(job) and plan.finished(job) is None:
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
    _check_same_data([one for own in trained.values() for one in own])
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
        differences=list(_differences(plan, cells, jobs, notes)),
        dev_metric=every[0].result.primary if every else "",
        only=plan.only,
        settings=plan.settings,
        searched=plan.searched,
        environments=list(distinct.values()),
    )


def _check_same_data(trained: Sequence[tuple[Job, KeptRun]]) -> None:
    """Stop where runs that should have the same data were made with other files of the same names."""
    first: dict[str, tuple[Job, str]] = {}
    for job, run in trained:
        made = run.environment.data_fingerprint
        other, known = first.setdefault(job.config.data.model_dump_json(), (job, made))
        if made != known:
            one, two = (f"{found.row}, {found.column}, seed {found.seed}" for found in (other, job))
            hint = "delete the files of one of them in the page's runs/, or give another folder by --out"
            raise UserError(f"{one} and {two} were not trained on the same data", hint=hint)


def _searched(
    plan: Plan, row: str, note: ColumnNote, chosen: Mapping[tuple[str, str], Chosen]
) -> dict[str, Any]:
    """What a cell says of its row's search."""
    found, grid = chosen.get((row, note.preset)), plan.grid(row, note)
    if found is None or not grid:
        return {}
    return {
        "settings": {name: value for name, value in found.settings.items() if name in grid},
        "trials": found.trials,
        "grid": grid,
    }


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
            ours = _difference(plan, better, worse, jobs, notes[column.name].metric)
            seeds = len(_seeds_of_both(better, worse))
            unknown: Verdict = "diverged" if better.diverged or worse.diverged else "not run"
            yield Ordering(
                column=column.name,
                better=better.row,
                worse=worse.row,
                paper=(better.paper or 0) - (worse.paper or 0),
                ours=ours,
                seeds=seeds,
                verdict=_VERDICTS[0 if ours is None else sign * ours.sign] if seeds else unknown,
            )


def _differences(
    plan: Plan,
    cells: Sequence[Cell],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    notes: Mapping[str, ColumnNote],
) -> Iterator[Difference]:
    """Those of the exhibit's `differences` for which both rows have runs, in every column."""
    known = {(cell.column, cell.row): cell for cell in cells}
    for column, note in notes.items():
        for row, other in plan.exhibit.differences:
            first, second = known.get((column, row)), known.get((column, other))
            if first is None or second is None or not (seeds := _seeds_of_both(first, second)):
                continue
            ours = _difference(plan, first, second, jobs, note.metric)
            if ours is not None:
                yield Difference(column=column, row=row, other=other, ours=ours, seeds=len(seeds))


def _seeds_of_both(one: Cell, other: Cell) -> set[int]:
    return {run.seed for run in one.runs} & {run.seed for run in other.runs}


def _difference(
    plan: Plan, ours: Cell, theirs: Cell, jobs: Mapping[tuple[str, str], Sequence[Job]], metric: str
) -> Interval | None:
    """The difference of two cells of a column."""
    if metric == "bytes":
        return _counted(ours, theirs)
    first, second = (jobs.get((cell.row, cell.column), []) for cell in (ours, theirs))
    return plan.difference(first, second, metric)


def _counted(ours: Cell, theirs: Cell) -> Interval | None:
    """The difference of two rows over common seeds, whose numbers are counted and not estimated: no spread."""
    first, second = ({run.seed: run.value for run in cell.runs} for cell in (ours, theirs))
    pairs = [(first[seed], second[seed]) for seed in sorted(_seeds_of_both(ours, theirs))]
    known = [one - other for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    mean = fmean(known)
    return Interval(mean=mean, low=mean, high=mean)


_VERDICTS: dict[int, Verdict] = {1: "holds", -1: "fails", 0: "cannot be told"}
