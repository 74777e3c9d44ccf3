"""`reproduction.json`: a reproduced table or figure beside the paper's numbers, all that its page shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, Literal

from fedrel.evaluation.bootstrap import Interval
from fedrel.evaluation.outcome import Record
from fedrel.runs.records import Environment, Trial

Verdict = Literal["holds", "fails", "cannot be told", "diverged", "not run"]


class SeedRun(Record):
    """One run of a cell."""

    seed: int
    value: float | None
    best_round: int
    rounds: int
    converged: bool
    seconds: float
    dev: list[tuple[int, float]]
    """The dev metric by round; only in the first column that shows a number of the run."""
    precision: list[tuple[float, float]] = []
    """Precision by recall on the test set, where the page draws that; only there, too."""


class Cell(Record):
    """A row of an exhibit in one of its columns."""

    row: str
    column: str
    paper: float | None = None
    settings: dict[str, Any] = {}
    """What the search on dev chose."""
    grid: dict[str, list[Any]] = {}
    """All that it chose from."""
    trials: list[Trial] = []
    """What each had on dev, by which round; unknown of searches before version 0.3."""
    runs: list[SeedRun] = []
    diverged: list[int] = []
    """The seeds whose runs could not go on, since weights grew out of bounds; they are not among `runs`."""


class Ordering(Record):
    """Two rows that the paper orders, and whether our runs order them the same way."""

    column: str
    better: str
    worse: str
    paper: float
    ours: Interval | None = None
    seeds: int = 0
    """How many both rows have: the interval is over these."""
    verdict: Verdict


class Difference(Record):
    """A row's difference from another one, beside the paper's orderings."""

    column: str
    row: str
    other: str
    metric: str = ""
    """If not the column's."""
    ours: Interval
    seeds: int
    """How many both rows have."""


class ColumnNote(Record):
    """Which experiment a column is."""

    name: str
    preset: str
    instead: bool = False
    metric: str
    paper_metric: str = ""
    """What the paper's numbers are, if not this metric."""
    target: float | None = None
    """What is to be reached, if not what the paper has."""
    set: dict[str, Any] = {}
    """Its settings."""
    fold_files: dict[str, list[str]] = {}
    """Those of a fold of a cross-validation."""
    missing: str = ""
    """Why it could not be run."""

    @property
    def runs_key(self) -> str:
        """What columns have in common that show different numbers of the same runs."""
        return json.dumps([self.preset, self.set, self.fold_files], sort_keys=True)


def asked_columns(columns: Sequence[ColumnNote], only: Sequence[str]) -> list[ColumnNote]:
    """The columns of these names, and those that show numbers of the same runs; without names, all."""
    keys = {column.runs_key for column in columns if column.name in only}
    return [column for column in columns if not only or column.runs_key in keys]


def first_of_each(columns: Sequence[ColumnNote]) -> list[ColumnNote]:
    """Of columns that show numbers of the same runs, the first."""
    first = {column.runs_key: column for column in reversed(columns)}
    return [column for column in columns if first[column.runs_key] is column]


class Reproduction(Record):
    """`reproduction.json`: all that the page shows."""

    name: str
    title: str
    about: str
    scale: float
    better: Literal["more", "less"]
    target: float | None
    seeds: int
    columns: list[ColumnNote]
    rows: list[str]
    cells: list[Cell]
    orderings: list[Ordering]
    differences: list[Difference] = []
    dev_metric: str = ""
    only: list[str] = []
    """The columns that were asked for; empty: all."""
    settings: list[str] = []
    """What was set by hand, as KEY=VALUE."""
    searched: bool = True
    """Whether settings were searched, where the paper did."""
    environments: list[Environment]
    bootstrap: int = 0
    """The version of the bootstrap that made its intervals."""

    def column(self, name: str) -> ColumnNote:
        """What a column is."""
        return next(column for column in self.columns if column.name == name)

    @property
    def runs(self) -> list[SeedRun]:
        """All runs, each once: several columns may show numbers of the same ones."""
        own = {
            (cell.row, self.column(cell.column).runs_key, run.seed): run
            for cell in self.cells
            for run in cell.runs
        }
        return list(own.values())

    @property
    def asked(self) -> list[ColumnNote]:
        """The columns that were asked for."""
        return asked_columns(self.columns, self.only)

    @property
    def command(self) -> str:
        """What makes the same numbers."""
        only = "".join(f" --column {shlex.quote(column)}" for column in self.only)
        only += "".join(f" --set {shlex.quote(setting)}" for setting in self.settings)
        only += " --out FOLDER" if self.settings else ""
        searched = "" if self.searched else " --no-search"
        return f"fedrel reproduce {shlex.quote(self.name)} --seeds {self.seeds}{only}{searched}"
