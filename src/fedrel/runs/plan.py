"""An exhibit on this machine: the runs that it needs, the searches before them, and what is finished of both.

Each cell is some runs, one a seed, in folders named after their configs, so that exhibits share the runs that they
have in common. What is finished is read: from its folder, or as it was kept beside the page.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fedrel.config.check import parse_settings
from fedrel.config.papers import Column, MissingDataError, experiment, find_exhibit, missing_files
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.corpora import corpus_of, data_folder
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import Interval, RankedUnits, UnlikeUnitsError
from fedrel.files import InUseError, locked
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.compare import Watch, difference_if_known, finished, is_finished
from fedrel.runs.kept_runs import KeptRun, KeptRuns, experiment_id
from fedrel.runs.records import Trial
from fedrel.runs.reproduction_record import ColumnNote, Reproduction
from fedrel.runs.round_outcome import DivergedRunError
from fedrel.runs.sweep import combination_folder, halving, halving_rounds, points
from fedrel.runs.train import Watcher

_log = logging.getLogger(__name__)

POINTS = 80  # of a curve


@dataclass(frozen=True)
class Job:
    """A run that an exhibit needs; its config is not `settled` before its row's settings are found."""

    row: str
    column: str
    number: int
    """Which of its cell's seeds, from 0."""
    preset: str
    config: Config
    folder: Path
    settled: bool

    @property
    def seed(self) -> int:
        """The config's."""
        return self.config.seed


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
    def runnable(self) -> list[tuple[Column, ColumnNote]]:
        """The columns that were asked for and whose data are here."""
        return [
            (column, note)
            for column, note in self._columns
            if not note.missing and (not self.only or column.name in self.only)
        ]

    def missing(self) -> list[str]:
        """The corpora that the paper's own presets need and that are not at hand, and where each can be got."""
        lacking = [
            (note, missing_files(load_config(column.preset)))
            for column, note in self._columns
            if note.missing or note.instead
        ]
        found = [(note, corpus_of(files[0]) if files else None) for note, files in lacking]
        return list(
            dict.fromkeys(
                note.missing if corpus is None else f"{corpus.title}: {corpus.source}"
                for note, corpus in found
            )
        )

    def jobs(self) -> Iterator[Job]:
        """All runs, the first seed of every cell first, with the settings that are chosen by now."""
        chosen = self.chosen()
        searched = dict(self._searched(chosen))
        for number in range(self.seeds):
            for column, note in self.runnable:
                for row, asked in self.exhibit.rows_of(column).items():
                    key = (row, note.preset)
                    grid = self.grid(row, note)
                    found = chosen[key].settings if key in chosen else {}
                    settings = {name: value for name, value in found.items() if name in grid}
                    config = experiment(column, row, asked, settings, number).config
                    folder = _room(
                        searched.get(experiment_id(config)) or self._folder(note.preset, config), config
                    )
                    settled = key in chosen or not grid
                    yield Job(row, column.name, number, note.preset, config, folder, settled)

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
        """The difference of two rows, given as their finished runs, with its interval, if it can be told.

        Only seeds that both have count: another seed may have another fold of the test set.
        """
        common = {job.seed for job in ours} & {job.seed for job in theirs}
        ours, theirs = ([job for job in own if job.seed in common] for own in (ours, theirs))
        first, second = ([self._kept.units(job.config) for job in own] for own in (ours, theirs))
        with suppress(UnlikeUnitsError):  # of rows with settings of their own for the data
            return difference_if_known(first, second, metric, [str(job.config.data.test) for job in ours])
        return None

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

    def search(self, watch: Watch, rows: Sequence[str], columns: Sequence[str]) -> None:
        """Find these rows' best settings on dev for these columns, from the paper's grid."""
        presets = {note.preset for column, note in self.runnable if column.name in columns}
        for one in self._searches():
            if one.row in rows and one.preset in presets and (one.row, one.preset) not in self.chosen():
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
        """What is searched for a row of a column: the exhibit's settings and the method's own options.

        What the column or the row sets is not searched.
        """
        if not self.searched:
            return {}
        shared = (self._searching.instead_search if note.instead else {}) or self._searching.search
        fixed = {**note.set, **self._searching.rows[row].set}
        searched = {**shared, **self._searching.rows[row].search}
        return {key: values for key, values in searched.items() if key not in fixed}

    def chosen(self) -> dict[tuple[str, str], Chosen]:
        """The searched settings by row and preset, as far as searches are finished.

        Where all combinations diverged, it is the first of them, with which the table's runs will diverge, too.
        """
        chosen = {}
        for one in self._searches():
            found = self._kept.search(one.name, one.folder)
            if found is not None:
                best = found.best.get(one.config.method, points(one.grid)[0])
                chosen[one.row, one.preset] = Chosen(best, found.rows)
        return chosen

    def outdated(self, shown: Reproduction | None) -> list[str]:
        """The rows whose settings in the page are of another search, and that have none of the present one yet."""
        if shown is None:
            return []
        missing = {(one.row, one.preset) for one, done in self.searches() if not done}
        had = {(cell.row, shown.column(cell.column).preset) for cell in shown.cells if cell.settings}
        rows = {row for row, _ in had & missing}
        return [row for row in self.exhibit.rows if row in rows]

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
                yield experiment_id(one.config.with_settings(found.settings)), one.run_with(found.settings)

    def _folder(self, preset: str, config: Config, *inside: str) -> Path:
        named = f"{preset.replace('/', '-')}-{config.method}-{experiment_id(config)}"
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
            within = file.is_relative_to(data_folder())
            named = file.relative_to(data_folder()) if within else Path(file.parent.name, file.name)
            missing = f"{error.problem}: {named.as_posix()}"  # no path of one machine
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
    """The folder for a run, or one beside it where a run is that this one neither is nor can go on from."""
    rounds, every = config.training.rounds, config.evaluation.every
    last = Checkpoints(folder / "checkpoint", config.shapes_result()).last_round()
    # A shorter run's last round is evaluated in any case; a longer one must not have that as its best.
    odd = last % every and (folder / "result.json").exists() and not is_finished(config, folder)
    return folder.with_name(f"{folder.name}-{rounds}-rounds") if last > rounds or odd else folder
