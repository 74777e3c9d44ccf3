"""Short records of finished runs, and what searches found, kept beside the page that shows them.

A run folder has checkpoints and a model: tens of megabytes that nobody commits. A page needs the result, the rounds
that were evaluated and, for intervals, the answers on the test set. With these in the page's own folder, a
reproduction goes on in another clone of the repository, and its page can be made again without training.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Units, units_of
from fedrel.evaluation.outcome import Record
from fedrel.files import atomic_file, write_text
from fedrel.runs.compare import answers_of_run, is_finished
from fedrel.runs.folder import UNITS, read_json, read_run, write_json
from fedrel.runs.records import Environment, Result, Round, Sweep
from fedrel.runs.run_end import ends_at

_DELETE = "delete it, and it is made again"


class KeptRun(Record):
    """What a page takes from a run."""

    result: Result
    environment: Environment
    evaluated: list[Round]
    """The rounds that were evaluated, without what single sites did in them."""
    f1_by_relation: dict[str, float] = {}
    uploaded: float | None = None
    """Bytes that an active site sent in a round, on average."""

    @property
    def dev(self) -> list[tuple[int, float]]:
        """The dev metric by round."""
        found = ((one.round, (one.dev or {}).get(self.result.primary)) for one in self.evaluated)
        return [(number, value) for number, value in found if value is not None]


class KeptRuns:
    """A page's folder of them: two files a run, named after its method, seed, config and maximum number of rounds.

    What another page beside this one keeps is found there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, config: Config, run: Path) -> KeptRun | None:
        """The finished run of a config, as it was kept; one that is finished in its folder is kept now."""
        _, found = self._found(config)
        return found or (self._keep(config, run) if is_finished(config, run) else None)

    def diverged(self, config: Config) -> bool:
        """Whether the run of a config was tried and diverged; it would do so again."""
        return any(self._paths(_divergence(_kept_name(config))))

    def keep_divergence(self, config: Config, said: str) -> None:
        """Note that the run of a config diverged, and what it said."""
        write_text(self._folder / _divergence(_kept_name(config)), f"{said}\n")

    def search(self, name: str, folder: Path) -> Sweep | None:
        """A finished search, as it was kept; one that is finished in its folder is kept now."""
        for path in (*self._paths(name), folder / name):
            if path.exists():
                found: Sweep = read_json(Sweep, path, hint=_DELETE)
                if path.parent == folder:
                    write_json(self._folder / name, found, seal=True)
                return found
        return None

    def units(self, config: Config) -> Units:
        """A kept run's answers on the test set."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        kept, _ = self._found(config)
        path = _units_path(kept)
        try:
            return units_of(load(lzma.decompress(path.read_bytes())))
        except (OSError, lzma.LZMAError, SafetensorError) as error:
            hint = f"delete it and {kept.name} beside it, and the run is made again"
            raise UserError(f"cannot be read: {error}", file=path, hint=hint) from error

    def _keep(self, config: Config, folder: Path) -> KeptRun:
        run = read_run(folder)
        left_out = {"at_sites", "active", "watched", "class_distances"}
        found = KeptRun(
            result=run.result,
            environment=Environment.model_validate(run.environment),
            evaluated=[
                Round(**one.model_dump(exclude=left_out)) for one in run.rounds if one.dev or one.test
            ],
            f1_by_relation={}
            if run.classes is None
            else {one.relation: one.f1 for one in run.classes.per_class},
            uploaded=run.per_site_and_round.up if run.per_site_and_round else None,
        )
        own, answers = self._folder / _kept_name(config), lzma.compress((folder / UNITS).read_bytes())
        answers_of_run(run)  # a `UserError` if the file is damaged
        with atomic_file(_units_path(own)) as path:
            path.write_bytes(answers)
        write_json(own, found, indent=None, seal=True)
        return found

    def _found(self, config: Config) -> tuple[Path, KeptRun | None]:
        """The file of a config's run, here or beside another page, and what it says."""
        for path in self._paths(_kept_name(config)):
            found: KeptRun = read_json(KeptRun, path, hint=_DELETE)
            if ends_at(config, found.result.rounds, found.result.best_round or 0):
                return path, found
        return self._folder / _kept_name(config), None

    def _paths(self, name: str) -> Iterator[Path]:
        """The files of this name: this page's, then those of pages beside it."""
        beside = sorted(self._folder.parent.parent.glob(f"*/{self._folder.name}/{name}"))
        return (path for path in (self._folder / name, *beside) if path.exists())


def experiment_id(config: Config) -> str:
    """A name for what a run comes to, but for its number of rounds, which may grow: patience may not.

    Precision counts where it is not left to the processor.
    """
    patience, precision = config.evaluation.patience, config.training.precision
    parts = [config.digest()[:10], f"patience-{patience}" if patience else ""]
    return "-".join(filter(None, [*parts, "" if precision == "auto" else precision]))


def run_id(config: Config) -> str:
    """The same of a run with this number of rounds, at most."""
    return f"{experiment_id(config)}-{config.training.rounds}"


def _kept_name(config: Config) -> str:
    return f"{config.method}-seed-{config.seed}-{run_id(config)}.json"


def _units_path(kept: Path) -> Path:
    return kept.with_suffix(".units.xz")


def _divergence(kept: str) -> str:
    return f"{kept.removesuffix('.json')}.diverged.txt"
