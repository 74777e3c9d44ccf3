"""What the published papers report, as facts: `presets/papers` has a file a paper, with its tables and figures.

An exhibit is a table or a figure. Its rows are methods, its columns are experiments: a preset and settings. A
column may name another preset to run `instead`, where the paper's own corpus is not at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.config.sources import load_config, papers_folder
from fedrel.errors import UserError, nearest

Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
"""The values to be tried of each setting."""


class Row(Section):
    """A line of an exhibit: a method, and settings that make it this line."""

    method: str = ""
    """The method; by default the line's own name."""
    set: dict[str, Any] = {}
    """Settings, by key."""
    search: Grid = {}
    """Values of the method's own options, searched together with the exhibit's grid; of a setting that is in both,
    these."""
    columns: list[str] = []
    """The only columns to run it in; by default all."""


class Column(Section):
    """An experiment of an exhibit, and the numbers that the paper has for it."""

    name: str
    preset: str
    """The experiment as published."""
    instead: str | None = None
    """The preset to run where the files of `preset` are missing."""
    set: dict[str, Any] = {}
    """Settings for both."""
    folds: int = 0
    """Of a cross-validation: how many parts. Each seed has the next one; the first comes again after the last."""
    fold_files: dict[str, list[str]] = {}
    """Settings of a fold, in which `{fold}` stands for its number."""
    metric: str | None = None
    """Where it is another one than the exhibit's."""
    paper: dict[str, float] = {}
    """What the paper reports, by row; a row that it leaves out has none."""

    def fold(self, number: int) -> dict[str, list[str]]:
        """The settings of the seed that is `number` after the first: its fold's files."""
        return {
            key: [path.replace("{fold}", str(number % self.folds + 1)) for path in paths]
            for key, paths in self.fold_files.items()
        }

    @model_validator(mode="after")
    def _folds_have_files(self) -> Column:
        if bool(self.folds) != bool(self.fold_files):
            raise ValueError("`folds` and `fold_files` go together")
        return self


class Exhibit(Section):
    """A table or a figure."""

    about: str
    metric: str
    """A metric of `result.json`; `f1/RELATION` for that of one relation; `rounds` for the rounds to `target`;
    `bytes` for what one site sends in a round."""
    instead_metric: str | None = None
    """The metric where `instead` was run, if it is another one, of columns that have none of their own."""
    scale: float = 1.0
    """The paper's numbers are ours times this: 100 where it has per cent."""
    target: float | None = None
    """Of `rounds`: the value of `target_metric` to be reached."""
    instead_target: float | None = None
    """The value where `instead` was run, if it is another one; the paper's orderings are not looked for there."""
    target_metric: str = "f1"
    """Of `rounds`: a metric of the rounds."""
    better: Literal["more", "less"] = "more"
    """Which of two numbers is the better one."""
    rows: dict[str, Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)
    search: Grid = {}
    """The paper's own grid: each row's settings are searched on dev before its seeds are run, once for all columns
    with the same preset, on the first of them."""
    instead_search: Grid = {}
    """The grid where `instead` was run, if it is another one."""
    finalists: int = Field(3, ge=1)
    """How many points of the grid the search trains to the end, at most."""
    differences: list[tuple[str, str] | tuple[str, str, str]] = []
    """Pairs of rows whose difference the page has beside the paper's orderings, the first's from the second, as
    `["lazy-mil", "one"]`; in another metric of `result.json` as `["lazy-mil", "one", "auc_2000"]`."""
    plot: Literal["rounds", "precision"] = "rounds"
    """What the page draws of each run: the dev metric by round, or precision by recall on the test set."""
    runs_of: str = ""
    """Another exhibit of the paper that is of the same runs: its search gives the settings here, too."""

    def rows_of(self, column: Column) -> dict[str, Row]:
        """The rows to be run in a column: those that the paper has there, and those that it has nowhere."""
        somewhere = {row for one in self.columns for row in one.paper}
        return {
            row: asked
            for row, asked in self.rows.items()
            if (row in column.paper or row not in somewhere)
            and (not asked.columns or column.name in asked.columns)
        }

    @model_validator(mode="after")
    def _papers_rows_are_rows(self) -> Exhibit:
        for column in self.columns:
            if unknown := sorted(column.paper.keys() - self.rows.keys()):
                raise ValueError(f"column {column.name!r} has numbers for {unknown}, which are no rows")
        names = {column.name for column in self.columns}
        for row, asked in self.rows.items():
            if unknown := sorted(set(asked.columns) - names):
                raise ValueError(f"row {row!r} names {unknown}, which are no columns")
        if unknown := sorted({row for pair in self.differences for row in pair[:2]} - self.rows.keys()):
            raise ValueError(f"`differences` names {unknown}, which are no rows")
        if (self.metric == "rounds") != (self.target is not None):
            raise ValueError("`rounds` and `target` go together")
        if self.target is None and self.instead_target is not None:
            raise ValueError("`instead_target` goes with `target`")
        return self


class Paper(Section):
    """A paper's file: its title and its exhibits by name."""

    title: str
    exhibits: dict[str, Exhibit] = Field(min_length=1)

    @model_validator(mode="after")
    def _runs_are_of_exhibits(self) -> Paper:
        for name, exhibit in self.exhibits.items():
            if not exhibit.runs_of:
                continue
            other = self.exhibits.get(exhibit.runs_of)
            if other is None or other.runs_of or exhibit.search or exhibit.instead_search:
                raise ValueError(f"{name}: `runs_of` names another exhibit, which has the `search`")
            if {column.preset for column in exhibit.columns} - {column.preset for column in other.columns}:
                raise ValueError(f"{name}: {exhibit.runs_of} has not all of its presets")
            if unlike := [row for row, asked in exhibit.rows.items() if other.rows.get(row) != asked]:
                raise ValueError(f"{name}: {exhibit.runs_of} has no such rows as {unlike}")
        return self


class MissingDataError(UserError):
    """The data of an experiment are not at hand."""


class Experiment(NamedTuple):
    """A cell of an exhibit, ready to be run; the seed is the config's."""

    config: Config
    preset: str
    instead: bool


@cache
def papers() -> dict[str, Paper]:
    """All papers by the name of their file."""
    return {path.stem: _read(path) for path in sorted(papers_folder().glob("*.toml"))}


def find_exhibit(name: str) -> tuple[Paper, Exhibit]:
    """An exhibit by paper and name, as `feded/table3`; of a paper in a file of the user's, `my.toml/table3`."""
    of = name.rpartition("/")[0]
    found = {of: _read(Path(of))} if of.endswith(".toml") else papers()
    known = {
        f"{paper}/{one}": (facts, facts.exhibits[one])
        for paper, facts in found.items()
        for one in facts.exhibits
    }
    if name not in known:
        raise UserError(f"no table or figure is called {name!r}", hint=nearest(name, known))
    return known[name]


def experiment(
    column: Column, row: str, asked: Row, settings: Mapping[str, Any], number: int = 0
) -> Experiment:
    """The experiment of a cell with the seed that is `number` after the preset's; `settings` count most.

    `MissingDataError` where the data are missing.
    """
    chosen = {"method": asked.method or row, **column.set, **column.fold(number), **asked.set, **settings}
    missing: list[Path] = []
    for preset in filter(None, (column.preset, column.instead)):
        config = load_config(preset, chosen)
        config = config.with_settings({"seed": config.seed + number})
        lacks = missing_files(config)
        if not lacks:
            return Experiment(config, preset, instead=preset != column.preset)
        missing += lacks
    raise MissingDataError(
        "no such file",
        file=missing[0],
        hint=f"set FEDREL_DATA to the folder of the corpora (preset {column.preset})",
    )


def missing_files(config: Config) -> list[Path]:
    """The data files that a config names and that are not there."""
    return [path for path in _files(config) if not _exists(path)]


def _files(config: Config) -> Iterator[Path]:
    data = config.data
    if data.corpus == "world":
        return
    for key in ("train", "dev", "test", "pool"):
        for path in getattr(data, key):
            yield data.root / path


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; one within an archive counts as there if the archive is."""
    return path.exists() or any(part.is_file() for part in path.parents)


def _read(path: Path) -> Paper:
    return check(Paper, read_toml(path, Paper), str(path))
