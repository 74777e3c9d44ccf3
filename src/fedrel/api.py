"""Train and compare from Python, as the commands do; results are typed objects that a notebook can show.

    import fedrel

    result = fedrel.run("demo", "runs/first", progress=print)
    result.metrics["auc"]

`docs/api.md` has more examples, which the tests run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.config.schema import Config
from fedrel.config.sources import Source, load_config
from fedrel.errors import UserError
from fedrel.files import write_text
from fedrel.runs.compare import Report, Settings, Watch, run_folder
from fedrel.runs.compare import compare as compare_methods
from fedrel.runs.folder import read_comparison, read_run
from fedrel.runs.records import ComparisonRow, Result, Round
from fedrel.runs.train import Watcher
from fedrel.runs.train import run as train
from fedrel.studio.formatting import about_round

if TYPE_CHECKING:
    import pandas

    from fedrel.runs.prepare import Preparation

Progress = Callable[[str], None]
"""Told in lines of text how a run goes on, as `print` is."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: its numbers on the test set, every round, and the folder that has all the rest."""

    folder: Path
    result: Result
    rounds: Sequence[Round] = field(repr=False)

    @property
    def method(self) -> str:
        """The method's name."""
        return self.result.method

    @property
    def seed(self) -> int:
        """The seed."""
        return self.result.seed

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the test set, with the weights of the best round on dev."""
        return self.result.metrics

    @property
    def model(self) -> Path:
        """The folder of the trained model, for `load_model`."""
        return self.folder / "model"

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each round: loss, dev metrics (`dev.auc`), bytes, seconds, and how many sites were active."""
        return _frame([_flat(one) for one in self.rounds]).set_index("round")

    def _repr_html_(self) -> str:
        from fedrel.studio.tables import run_view

        return run_view(self.folder, self.result)


@dataclass(frozen=True)
class Comparison:
    """Several methods with one or more seeds each; a row is a run."""

    folder: Path
    rows: Sequence[ComparisonRow]

    def run(self, method: str, seed: int | None = None) -> RunResult:
        """One of the runs; without a seed, the method's first."""
        seeds = [row.seed for row in self.rows if row.method == method and seed in (None, row.seed)]
        if not seeds:
            known = ", ".join(f"{row.method} with seed {row.seed}" for row in self.rows)
            raise UserError(f"there is no run of {method!r} with that seed", hint=f"there are: {known}")
        return read_result(run_folder(self.folder, method, seeds[0]))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each run: method, seed, metrics, rounds, bytes, seconds."""
        return _frame([_flat_row(row) for row in self.rows])

    def _repr_html_(self) -> str:
        from fedrel.studio.tables import comparison_view

        return comparison_view(self.folder, self.rows)


def run(
    config: Source,
    out: str | Path,
    *,
    resume: bool = False,
    from_round: int | None = None,
    report: bool = True,
    engine: str | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """Train one method and write the run folder `out`.

    `config` is a TOML file, a preset's name, a dictionary or a `Config`. With `resume`, a run in that folder goes
    on where it stopped, or with `from_round` from the model of that round. `report` writes `report.html`. `engine`
    replaces the config's `engine.kind`. `progress` is called with a line of text for each round; `watch` is for
    displays that need more than text.
    """
    chosen = _config(config, engine)
    watcher = (watch or text_progress(progress))(f"{chosen.method}, seed {chosen.seed}", chosen)
    train(chosen, Path(out), resume=resume, from_round=from_round, watcher=watcher, report=_report(report))
    return read_result(Path(out))


def compare(
    config: Source,
    methods: Sequence[str],
    out: str | Path,
    *,
    seeds: int = 1,
    best: Mapping[str, Settings] | None = None,
    report: bool = True,
    engine: str | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Train several methods, each with `seeds` seeds from the config's own on, in folders below `out`.

    Run again, it keeps what is finished and goes on with what is not. `best` has settings by method, as
    `{"fedprox": {"methods.fedprox.mu": 0.1}}`. For the others, see `run`.
    """
    rows = compare_methods(
        _config(config, engine),
        Path(out),
        list(dict.fromkeys(methods)),
        seeds,
        best=best,
        watch=watch or text_progress(progress),
        report=_report(report, Path(out)),
    )
    if report:
        write_report(Path(out))
    return Comparison(Path(out), rows)


def read_result(folder: str | Path) -> RunResult:
    """The result of a run that is finished in this folder."""
    found = read_run(Path(folder))
    return RunResult(found.folder, found.result, found.rounds)


def write_report(folder: Path, *, standalone: bool = False) -> Path:
    """Write the report of a finished run, comparison or sweep anew; returns the page's path.

    A `standalone` page needs no file beside it.
    """
    from fedrel.studio.report import write_comparison_report, write_run_report
    from fedrel.studio.sweep_page import write_sweep_page
    from fedrel.studio.tables import comparison_markdown

    if (folder / "comparison.json").exists():
        rows = read_comparison(folder)
        runs: dict[str, list[Path]] = {}
        for row in rows:
            runs.setdefault(row.method, []).append(run_folder(folder, row.method, row.seed))
        write_text(folder / "comparison.md", comparison_markdown(rows))
        return write_comparison_report(folder, runs, standalone=standalone)
    if (folder / "sweep.json").exists():
        return write_sweep_page(folder)
    if not (folder / "result.json").exists():
        problem = "holds no finished run (result.json), comparison (comparison.json) or sweep (sweep.json)"
        raise UserError(problem, file=folder, hint="name the folder that `run`, `compare` or `sweep` wrote")
    return write_run_report(folder, standalone=standalone)


def _config(source: Source, engine: str | None) -> Config:
    return load_config(source, {} if engine is None else {"engine.kind": engine})


def _report(wanted: bool, shared: Path | None = None) -> Report | None:
    """What writes a run's page; the runs of a comparison share the plots' script in its folder."""
    from fedrel.studio.report import write_run_report

    return partial(write_run_report, shared=shared) if wanted else None


def text_progress(say: Progress | None, *, every: float = 0.0) -> Watch:
    """Say in lines of text how runs go on: beginning, first round, end, and between them one in `every` seconds."""

    def watch(name: str, config: Config) -> Watcher:
        if say is None:
            return Watcher()
        last = -math.inf

        def prepared(ready: Preparation) -> None:
            sites = ready.site_data.partition.sites
            say(f"{name}: {len(ready.dataset.train):,} {config.data.unit} at {sites:,} sites")

        def round_done(one: Round) -> None:
            nonlocal last
            if time.monotonic() - last >= every:
                last = time.monotonic()
                about = about_round(one, config.evaluation.measure)
                say(f"{name}: round {one.round} of {config.training.rounds}, {about}")

        def finished(result: Result) -> None:
            metric = result.primary
            value = f", {metric} {result.metrics[metric]:.3f}" if metric in result.metrics else ""
            say(f"{name}: finished after {result.rounds} rounds{value}")

        return Watcher(prepared=prepared, round_done=round_done, finished=finished)

    return watch


def _flat(one: Round) -> dict[str, Any]:
    """A round as the columns of a table."""
    return {
        "round": one.round,
        "loss": one.loss,
        **{f"dev.{name}": value for name, value in (one.dev or {}).items()},
        "up": one.bytes.up,
        "down": one.bytes.down,
        "seconds": one.seconds,
        "selection_precision": one.selection_precision,
        "active": len(one.active),
        "examples": one.examples,
        "refused": len(one.refused),
    }


def _flat_row(row: ComparisonRow) -> dict[str, Any]:
    """A run of a comparison as the columns of a table."""
    return {
        "method": row.method,
        "seed": row.seed,
        **row.metrics,
        "rounds": row.rounds,
        "up": row.bytes.up,
        "down": row.bytes.down,
        "seconds": row.seconds,
        "selection_precision": row.selection_precision,
    }


def _frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        hint = "install it: pip install pandas"
        raise UserError("pandas is not installed, which `to_pandas` needs", hint=hint) from error
    return pandas.DataFrame(rows)
