"""The searches of an exhibit: which settings of which rows are searched on dev, and what was found.

A row has one search for all columns of a preset in which the same settings are searched. Each is kept beside the
page, under a name that tells it from a search of another grid, length or experiment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fedrel.config.papers import Column, Exhibit, experiment
from fedrel.config.schema import Config
from fedrel.files import InUseError, locked
from fedrel.runs.compare import Watch
from fedrel.runs.kept_runs import KeptRuns, experiment_id
from fedrel.runs.records import Trial
from fedrel.runs.reproduction_record import ColumnNote, Reproduction
from fedrel.runs.sweep import combination_folder, halving, halving_rounds, points

Cells = tuple[str, str, tuple[str, ...]]
"""A row, a preset and the searched settings: the cells that share a search."""


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
    def cells(self) -> Cells:
        """Those that it is for."""
        return self.row, self.preset, tuple(self.grid)

    @property
    def name(self) -> str:
        """The file of what it found: another grid, length, precision or experiment is another search."""
        training, patience = self.config.training, self.config.evaluation.patience
        facts = [self.config.digest(), training.rounds, patience, self.grid, self.finalists]
        facts += [training.precision] if training.precision != "auto" else []
        return f"search-{sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]}.json"

    @property
    def rounds(self) -> int:
        """How many rounds its runs have, if none ends early."""
        return halving_rounds(self.config, self.grid, self.finalists)

    @property
    def folders(self) -> list[Path]:
        """Those of its runs."""
        return [
            combination_folder(self.folder, self.config.method, settings) for settings in points(self.grid)
        ]


class Searches:
    """Those that an exhibit needs on this machine.

    `columns` are all of the exhibit that has the grid, with what they are here; `wanted` are the rows and columns
    whose settings are asked for. Without `searched`, there are none.
    """

    def __init__(
        self,
        exhibit: Exhibit,
        columns: Sequence[tuple[Column, ColumnNote]],
        wanted: Iterable[tuple[str, ColumnNote]],
        kept: KeptRuns,
        runs: Path,
        *,
        searched: bool,
    ) -> None:
        self._exhibit, self._searched = exhibit, searched
        self._kept, self._runs = kept, runs
        self.all = list(self._all(columns, {self.cells(row, note) for row, note in wanted}))

    def cells(self, row: str, note: ColumnNote) -> Cells:
        """Those that share a row's search in a column."""
        return row, note.preset, tuple(self.grid(row, note))

    def grid(self, row: str, note: ColumnNote) -> dict[str, list[Any]]:
        """What is searched for a row of a column: the exhibit's settings and the method's own options.

        What the column or the row sets is not searched.
        """
        if not self._searched:
            return {}
        shared = (self._exhibit.instead_search if note.instead else {}) or self._exhibit.search
        fixed = {**note.set, **self._exhibit.rows[row].set}
        searched = {**shared, **self._exhibit.rows[row].search}
        return {key: values for key, values in searched.items() if key not in fixed}

    def chosen(self) -> dict[Cells, Chosen]:
        """The searched settings, as far as searches are finished.

        Where all combinations diverged, it is the first of them, with which the table's runs will diverge, too.
        """
        chosen = {}
        for one in self.all:
            found = self._kept.search(one.name, one.folder)
            if found is not None:
                best = found.best.get(one.config.method, points(one.grid)[0])
                chosen[one.cells] = Chosen(best, found.rows)
        return chosen

    def left(self) -> list[Search]:
        """The searches that are not finished."""
        chosen = self.chosen()
        return [one for one in self.all if one.cells not in chosen]

    def run(self, watch: Watch, wanted: Collection[Cells]) -> list[Path]:
        """Carry out those that are left of these cells; returns the folders of those that another process is at."""
        in_use = []
        for one in self.left():
            if one.cells in wanted:
                try:
                    with locked(one.folder):
                        halving(
                            one.config,
                            one.folder,
                            one.grid,
                            [one.config.method],
                            finalists=one.finalists,
                            watch=watch,
                            name=one.name,
                        )
                except InUseError as error:
                    in_use.append(error.folder)
        return in_use

    def runs_of_table(self) -> dict[str, Path]:
        """The folders of the searches' runs that are runs of the table, too: the best settings of each row."""
        chosen = self.chosen()
        return {
            experiment_id(one.config.with_settings(found.settings)): combination_folder(
                one.folder, one.config.method, found.settings
            )
            for one in self.all
            if (found := chosen.get(one.cells))
        }

    def outdated(self, shown: Reproduction | None) -> list[str]:
        """The rows whose settings in the page are of another search, and that have none of the present one yet."""
        if shown is None:
            return []
        had = {(cell.row, shown.column(cell.column).preset) for cell in shown.cells if cell.settings}
        rows = {row for row, _ in had & {(one.row, one.preset) for one in self.left()}}
        return [row for row in self._exhibit.rows if row in rows]

    def _all(self, columns: Sequence[tuple[Column, ColumnNote]], wanted: set[Cells]) -> Iterator[Search]:
        """One for all cells that share it, on the first column that has them."""
        left = set(wanted)
        for column, note in columns:
            for row, asked in self._exhibit.rows_of(column).items():
                cells, grid = self.cells(row, note), self.grid(row, note)
                if cells in left and not note.missing and grid:
                    left.remove(cells)
                    config = experiment(column, row, asked, {}).config
                    folder = run_folder(self._runs / "search", note.preset, config)
                    if (rounds := config.training.rounds) % config.evaluation.every:
                        # a run that is evaluated off its schedule cannot be another one's beginning
                        folder = folder.with_name(f"{folder.name}-{rounds}-rounds")
                    yield Search(row, note.preset, config, folder, grid, self._exhibit.finalists)


def run_folder(inside: Path, preset: str, config: Config) -> Path:
    """Where the runs of an experiment are, in a folder of runs."""
    return inside / f"{preset.replace('/', '-')}-{config.method}-{experiment_id(config)}"
