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
from typing import Any, Literal

from fedrel.config.papers import Exhibit
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import Interval
from fedrel.files import InUseError, locked_in_turn
from fedrel.runs.compare import BudgetSpentError, Watch, checked, limited
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import POINTS, Chosen, Job, Plan
from fedrel.runs.records import to_target
from fedrel.runs.reproduction_record import Cell, ColumnNote, Ordering, Reproduction, SeedRun, Verdict
from fedrel.runs.train import Watcher

_log = logging.getLogger(__name__)

LATE = 0.1  # a best round within this last share of a run means that more rounds might help


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
