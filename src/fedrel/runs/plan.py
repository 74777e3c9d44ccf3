"""An exhibit on this machine: the runs that it needs, the searches before them, and what is finished of both.

Each cell is some runs, one a seed, in folders named after their configs, so that exhibits share the runs that they
have in common. What is finished is read: from its folder, or as it was kept beside the page.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.config.check import parse_settings
from fedrel.config.papers import Column, Exhibit, MissingDataError, experiment, find_exhibit, missing_files
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.corpora import corpus_of, data_folder
from fedrel.errors import UserError, nearest
from fedrel.evaluation.bootstrap import Interval, RankedUnits, UnlikeUnitsError
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.compare import difference_if_known, finished, is_finished
from fedrel.runs.kept_runs import KeptRun, KeptRuns, experiment_id, run_id
from fedrel.runs.reproduction_record import ColumnNote, asked_columns
from fedrel.runs.round_outcome import DivergedRunError
from fedrel.runs.searches import Searches, run_folder
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
        self._columns = self._noted(self.exhibit)
        self.columns = [note for _, note in self._columns]
        self.asked = asked_columns(self.columns, only)
        known = [column.name for column in self.columns]
        for unknown in set(only) - set(known):
            raise UserError(f"{name} has no column {unknown!r}", hint=nearest(unknown, known))
        with_grid = self.paper.exhibits[self.exhibit.runs_of or name.rpartition("/")[2]]
        wanted = [(row, note) for column, note in self.runnable for row in self.exhibit.rows_of(column)]
        self.searches = Searches(
            with_grid, self._noted(with_grid), wanted, self._kept, runs, searched=searched
        )

    @property
    def runnable(self) -> list[tuple[Column, ColumnNote]]:
        """The columns that were asked for and whose data are here."""
        asked = {note.name for note in self.asked}
        return [(column, note) for column, note in self._columns if not note.missing and note.name in asked]

    def missing(self) -> list[str]:
        """The corpora that the paper's own presets need and that are not at hand, and where to get each."""
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
        chosen, searched = self.searches.chosen(), self.searches.runs_of_table()
        for number in range(self.seeds):
            for column, note in self.runnable:
                for row, asked in self.exhibit.rows_of(column).items():
                    key = self.searches.cells(row, note)
                    grid = self.searches.grid(row, note)
                    found = chosen[key].settings if key in chosen else {}
                    settings = {name: value for name, value in found.items() if name in grid}
                    config = experiment(column, row, asked, settings, number).config
                    own = run_folder(self._runs, note.preset, config)
                    folder = _folder_for(searched.get(experiment_id(config), own), config)
                    settled = key in chosen or not grid
                    yield Job(row, column.name, number, note.preset, config, folder, settled)

    def distinct_jobs(self) -> list[Job]:
        """Each run once: several columns may show numbers of the same ones."""
        return list({(job.row, job.seed, run_id(job.config)): job for job in self.jobs()}.values())

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
            self.finished(job)  # is kept at once: a longer run may go on in its folder
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

    def _noted(self, exhibit: Exhibit) -> list[tuple[Column, ColumnNote]]:
        """An exhibit's columns, and what they are here."""
        return [(column, self._note(column)) for column in map(self._with, exhibit.columns)]

    def _with(self, column: Column) -> Column:
        """A column with what was set by hand, which counts more than its own settings and less than its rows'."""
        return column.model_copy(update={"set": {**column.set, **self._set}})

    def _note(self, column: Column) -> ColumnNote:
        exhibit, asked_metric = self.exhibit, column.metric or self.exhibit.metric
        facts: dict[str, Any] = {"name": column.name, "set": column.set, "fold_files": column.fold_files}
        try:
            row, asked = next(iter(exhibit.rows.items()))
            found = experiment(column, row, asked, {})
        except MissingDataError as error:
            file = Path(error.file or "")
            within = file.is_relative_to(data_folder())
            named = file.relative_to(data_folder()) if within else Path(file.parent.name, file.name)
            missing = f"{error.problem}: {named.as_posix()}"  # no path of one machine
            return ColumnNote(**facts, preset=column.preset, metric=asked_metric, missing=missing)
        metric = (exhibit.instead_metric if found.instead and not column.metric else None) or asked_metric
        return ColumnNote(
            **facts,
            preset=found.preset,
            instead=found.instead,
            metric=metric,
            paper_metric=asked_metric if asked_metric != metric and column.paper else "",
            target=exhibit.instead_target if found.instead else None,
        )


def _folder_for(folder: Path, config: Config) -> Path:
    """The folder for a run, or one beside it if the folder holds another run that this one cannot continue."""
    rounds, every = config.training.rounds, config.evaluation.every
    last = Checkpoints(folder / "checkpoint", config.shapes_result()).last_round()
    # A shorter run's last round is evaluated in any case; a longer one must not have that as its best.
    off_schedule = last % every and (folder / "result.json").exists() and not is_finished(config, folder)
    return folder.with_name(f"{folder.name}-{rounds}-rounds") if last > rounds or off_schedule else folder
