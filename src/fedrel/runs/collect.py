"""From an exhibit's finished runs to the record of its page: numbers, differences, and the paper's orderings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, Literal

from fedrel.config.papers import Exhibit
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import VERSION, Interval, mean_of_seeds
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import POINTS, Job, Plan
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
from fedrel.runs.searches import Cells, Chosen

ENOUGH_SEEDS = 3  # for an interval of what is one number a run
UNORDERED = ("precision", "recall")  # a threshold trades one for the other
LATE = 0.1  # a best round within this last share of a run means that more rounds might help


def collect(plan: Plan, shown: Reproduction | None = None) -> Reproduction:
    """The record of the finished runs; differences of the same runs are taken from the page's record."""
    exhibit, chosen = plan.exhibit, plan.searches.chosen()
    trained: dict[tuple[str, str], list[tuple[Job, KeptRun]]] = {}
    diverged: dict[tuple[str, str], list[int]] = {}
    for job in plan.jobs():
        if (found := plan.finished(job)) is not None:
            trained.setdefault((job.row, job.column), []).append((job, found))
        elif plan.diverged(job):
            diverged.setdefault((job.row, job.column), []).append(job.seed)
    _check_same_data([one for own in trained.values() for one in own])
    notes = {note.name: note for note in plan.asked}
    first: dict[tuple[str, str], str] = {}  # the column that has the curves of a row's runs
    cells = [
        Cell(
            row=row,
            column=column.name,
            paper=column.paper.get(row),
            **_searched(plan, row, note, chosen),
            runs=[
                _seed_run(run, exhibit, note, plan.precision(job))
                if first.setdefault((row, note.runs_key), column.name) == column.name
                else _seed_run(run, exhibit, note).model_copy(update={"dev": []})
                for job, run in trained.get((row, column.name), [])
            ],
            diverged=diverged.get((row, column.name), []),
        )
        for column in exhibit.columns
        if (note := notes.get(column.name)) is not None
        for row in exhibit.rows_of(column)
    ]
    jobs = {cell: [job for job, _ in own] for cell, own in trained.items()}
    every = [run for own in trained.values() for _, run in own]
    _check_metrics(exhibit, every)
    compared = _Compared(plan, cells, jobs, shown)
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
        orderings=list(_orderings(compared)),
        differences=list(_differences(compared)),
        dev_metric=every[0].result.primary if every else "",
        only=plan.only,
        settings=plan.settings,
        searched=plan.searched,
        environments=list(distinct.values()),
        bootstrap=VERSION,
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


def _check_metrics(exhibit: Exhibit, trained: Sequence[KeptRun]) -> None:
    """Stop where the exhibit asks for differences in a metric that its runs do not have."""
    for row, other, *metric in exhibit.differences:
        for run in trained[:1]:
            if unknown := sorted({*metric} - run.result.metrics.keys()):
                problem = f"`differences` of {row} and {other} names {unknown[0]!r}, which runs do not have"
                raise UserError(problem, hint=nearest(unknown[0], run.result.metrics))


def _searched(plan: Plan, row: str, note: ColumnNote, chosen: Mapping[Cells, Chosen]) -> dict[str, Any]:
    """What a cell says of its row's search."""
    found, grid = chosen.get(plan.searches.cells(row, note)), plan.searches.grid(row, note)
    if found is None or not grid:
        return {}
    return {
        "settings": {name: value for name, value in found.settings.items() if name in grid},
        "trials": found.trials,
        "grid": grid,
    }


def _seed_run(
    run: KeptRun, exhibit: Exhibit, note: ColumnNote, precision: Sequence[tuple[float, float]] = ()
) -> SeedRun:
    result, best, dev, value = run.result, run.result.best_round or 0, run.dev, value_of(run, exhibit, note)
    step = -(-len(dev) // POINTS)
    return SeedRun(
        seed=result.seed,
        value=value,
        best_round=best,
        rounds=result.rounds,
        converged=best <= (1 - LATE) * result.rounds
        or note.metric == "bytes"
        or (note.metric == "rounds" and value is not None),
        seconds=result.seconds,
        dev=list(dict.fromkeys([*dev[:: max(step, 1)], *dev[-1:]])),
        precision=list(precision),
    )


def value_of(run: KeptRun, exhibit: Exhibit, note: ColumnNote) -> float | None:
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


class _Compared:
    """Differences of the cells of an exhibit; those of the same runs as the page's are the page's."""

    def __init__(
        self,
        plan: Plan,
        cells: Sequence[Cell],
        jobs: Mapping[tuple[str, str], Sequence[Job]],
        shown: Reproduction | None,
    ) -> None:
        self.plan = plan
        self.cells = {(cell.row, cell.column): cell for cell in cells}
        self._jobs = jobs
        as_now = shown is not None and shown.bootstrap == VERSION
        self._known = self._of_same_runs(shown) if shown and as_now else {}

    def seeds(self, ours: Cell, theirs: Cell) -> int:
        """How many both have."""
        return len(_seeds_of_both(ours, theirs))

    def difference(self, ours: Cell, theirs: Cell, metric: str = "") -> Interval | None:
        """The difference of two cells of a column, over the seeds that both have, if it can be told.

        It is of the column's metric, or of another one of the same runs.
        """
        note = next(note for note in self.plan.columns if note.name == ours.column)
        asked = metric or note.metric
        if asked == "bytes":
            return of_bytes(ours, theirs)
        first, second = (self._jobs.get((cell.row, cell.column), []) for cell in (ours, theirs))
        if asked == "rounds":
            most = max((job.config.training.rounds for job in (*first, *second)), default=0)
            return of_rounds(ours, theirs, most)
        pair = (ours.column, ours.row, theirs.row, metric)
        if pair in self._known:
            return self._known[pair]
        return self.plan.difference(first, second, asked)

    def _of_same_runs(self, shown: Reproduction) -> dict[tuple[str, str, str, str], Interval]:
        same = {
            (cell.row, cell.column)
            for cell in shown.cells
            if (now := self.cells.get((cell.row, cell.column))) is not None and now.runs == cell.runs
        }
        told = [((one.column, one.better, one.worse, ""), one.ours) for one in shown.orderings]
        told += [((one.column, one.row, one.other, one.metric), one.ours) for one in shown.differences]
        return {
            (column, row, other, metric): ours
            for (column, row, other, metric), ours in told
            if ours is not None and {(row, column), (other, column)} <= same
        }


def _orderings(compared: _Compared) -> Iterator[Ordering]:
    """Every two rows that the paper tells apart, in every column."""
    exhibit = compared.plan.exhibit
    sign = 1 if exhibit.better == "more" else -1
    for column, note in zip(exhibit.columns, compared.plan.columns, strict=True):
        if note.target is not None or note.metric in UNORDERED:
            continue
        cells = [cell for cell in compared.cells.values() if cell.column == column.name]
        for pair in combinations([cell for cell in cells if cell.paper is not None], 2):
            worse, better = sorted(pair, key=lambda cell: sign * (cell.paper or 0))
            if better.paper == worse.paper:
                continue
            ours, seeds = compared.difference(better, worse), compared.seeds(better, worse)
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


def _differences(compared: _Compared) -> Iterator[Difference]:
    """Those of the exhibit's `differences` that can be told, in every column, but once for the same runs."""
    told = set()
    for column in compared.plan.columns:
        for row, other, *other_metric in compared.plan.exhibit.differences:
            metric = "".join(other_metric)
            first, second = (compared.cells.get((one, column.name)) for one in (row, other))
            if first is None or second is None or not (seeds := compared.seeds(first, second)):
                continue
            if metric and (column.runs_key, row, other, metric) in told:
                continue
            if not metric and column.metric in UNORDERED:
                continue
            told.add((column.runs_key, row, other, metric))
            ours = compared.difference(first, second, metric)
            if ours is not None:
                yield Difference(
                    column=column.name, row=row, other=other, metric=metric, ours=ours, seeds=seeds
                )


def _seeds_of_both(one: Cell, other: Cell) -> set[int]:
    return {run.seed for run in one.runs} & {run.seed for run in other.runs}


def of_bytes(ours: Cell, theirs: Cell) -> Interval | None:
    """The difference of two rows over common seeds, whose numbers are counted and not estimated: no spread."""
    first, second = ({run.seed: run.value for run in cell.runs} for cell in (ours, theirs))
    pairs = [(first[seed], second[seed]) for seed in sorted(_seeds_of_both(ours, theirs))]
    known = [one - other for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    mean = fmean(known)
    return Interval(mean=mean, low=mean, high=mean)


def of_rounds(ours: Cell, theirs: Cell, most: int) -> Interval | None:
    """The difference of two rows in rounds to a target, by a bootstrap over the seeds that both have.

    A run that never reached it, be it that it ended early, counts as if it had in the round after the `most` that a
    run can have. One or two seeds tell nothing.
    """
    first, second = (
        {run.seed: most + 1 if run.value is None else run.value for run in cell.runs}
        for cell in (ours, theirs)
    )
    by_seed = [first[seed] - second[seed] for seed in sorted(_seeds_of_both(ours, theirs))]
    return mean_of_seeds(by_seed) if len(by_seed) >= ENOUGH_SEEDS else None


_VERDICTS: dict[int, Verdict] = {1: "holds", -1: "fails", 0: "cannot be told"}
