"""A table or figure of a paper, run and put beside the paper's numbers.

A stopped reproduction goes on where it was. Several processes may work at one exhibit: each skips the runs that
another process is training, and in the end waits for these.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedrel.errors import UserError, nearest, some_of
from fedrel.files import InUseError, is_in_use, locked_in_turn
from fedrel.runs.collect import collect
from fedrel.runs.compare import BudgetSpentError, Watch, checked, limited
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.plan import Job, Plan
from fedrel.runs.reproduction_record import Reproduction, asked_columns, first_of_each
from fedrel.runs.searches import Cells
from fedrel.runs.train import Watcher

_log = logging.getLogger(__name__)

SEEDS = 3  # of a page that has none yet, where nobody says how many
_PAUSE = 0.5  # seconds between two looks at what other processes are at


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
    """Run what an exhibit lacks, then write `reproduction.json` into `out`; returns what the page has.

    Only these columns (`only`), rows and seeds are run; what the page had before stays on it. Without `seeds`, as
    many are run as the page has, or `SEEDS`. What another process is training is waited for. After `budget` seconds
    no round is begun any more, and the record has what is finished by then. `settings` change every column's
    config; a row's own settings stay.
    """
    shown = shown_on(out)
    wanted_seeds = seeds or seeds_for(shown)

    def plan_with(shown: Reproduction | None) -> Plan:
        """What is asked, and what the page has."""
        plan = Plan(name, out, runs, wanted_seeds, only, searched=search, settings=settings)
        if shown is None:
            return plan
        both, most = _columns_of_both(plan, shown), max(wanted_seeds, shown.seeds)
        return Plan(name, out, runs, most, both, searched=search, settings=settings)

    plan = plan_with(shown)
    columns = [note.name for note in asked_columns(plan.columns, only)]
    wanted = _Wanted(rows or list(plan.exhibit.rows), columns, wanted_seeds)
    _check(plan, wanted, out, shown)
    end = math.inf if budget is None else time.monotonic() + budget
    watch = limited(watch, budget)
    with suppress(BudgetSpentError):
        while in_use := _train_missing(plan, wanted, watch):
            _wait_for_one_of(in_use, end)
    with locked_in_turn(out):
        shown = shown_on(out)  # another process may have written it meanwhile
        plan = plan_with(shown)
        found = collect(plan, shown)
        if lost := _lost(shown, found, plan):
            hint = "run the command where all data are at hand, or delete the page to start again"
            _log.warning(
                "%s is left as it is: it has %s, not found here; %s", _page(out), some_of(lost, 3), hint
            )
            return shown or found
        write_json(_page(out), found)
    return found


def _check(plan: Plan, wanted: _Wanted, out: Path, shown: Reproduction | None) -> None:
    """Refuse what cannot be run, before anything is trained."""
    if shown is not None and (shown.searched, shown.settings) != (plan.searched, plan.settings):
        raise UserError(
            "the page is of another experiment: with other settings by hand, or with others searched",
            file=_page(out),
            hint=f"its command is {shown.command}; give this one another folder by --out",
        )
    for unknown in set(wanted.rows) - plan.exhibit.rows.keys():
        raise UserError(f"{plan.name} has no row {unknown!r}", hint=nearest(unknown, plan.exhibit.rows))
    if not any(column.name in wanted.columns for column, _ in plan.runnable):
        get = "; ".join(["set FEDREL_DATA to the folder of the corpora", *plan.missing()])
        raise UserError(
            f"the data of {plan.name} are not at hand", file=_page(out) if shown else None, hint=get
        )
    for job in plan.jobs():
        checked(job.config, {})
    for row in plan.searches.outdated(shown):
        _log.warning(
            "%s: the page has settings from another search; it stays as it is until these are done anew",
            row,
        )
    with locked_in_turn(out):
        pass  # fail before training if the folder cannot be written


def _lost(shown: Reproduction | None, found: Reproduction, plan: Plan) -> list[str]:
    """The runs of a page that a new record of it would not have, of rows and columns that there still are."""
    if shown is None:
        return []
    still = {(row, column.name) for column in plan.exhibit.columns for row in plan.exhibit.rows_of(column)}
    had, have = (
        {(cell.row, cell.column, run.seed) for cell in record.cells for run in cell.runs}
        for record in (shown, found)
    )
    return [
        f"{row}, {column}, seed {seed}" for row, column, seed in sorted(had - have) if (row, column) in still
    ]


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
    both = [note for note in plan.columns if note.name in {*plan.only, *shown.only}]
    return [note.name for note in first_of_each(both)]  # the others come with them


class _Wanted(NamedTuple):
    """What a command trains: these rows and columns, and the first so many seeds."""

    rows: Sequence[str]
    columns: Sequence[str]
    seeds: int

    def has(self, job: Job) -> bool:
        return job.row in self.rows and job.column in self.columns and job.number < self.seeds

    def cells(self, plan: Plan) -> set[Cells]:
        """Those of them that share a search."""
        return {
            plan.searches.cells(row, note)
            for column, note in plan.runnable
            for row in plan.exhibit.rows_of(column)
            if row in self.rows and column.name in self.columns
        }


def _train_missing(plan: Plan, wanted: _Wanted, watch: Watch) -> list[Path]:
    """Search and train what is missing of what is wanted; returns the folders of what another process is at."""
    in_use = plan.searches.run(watch, wanted.cells(plan))
    for job in plan.jobs():
        if wanted.has(job) and job.settled and not plan.diverged(job) and plan.finished(job) is None:
            name = f"{job.row}, {job.column}, seed {job.seed}"
            try:
                plan.train(job, name, watch(name, job.config))
            except InUseError as error:
                in_use.append(error.folder)
    return in_use


def _wait_for_one_of(folders: Sequence[Path], end: float) -> None:
    """Return when one of these folders is in use no more; `BudgetSpentError` if it is `end` before."""
    _log.warning("%d runs or searches are left, which other processes are at: waiting for them", len(folders))
    while all(map(is_in_use, folders)):
        if time.monotonic() > end:
            raise BudgetSpentError
        time.sleep(_PAUSE)
