"""Finished runs in short, kept beside the page that shows them.

A run folder has checkpoints and a model: tens of megabytes that nobody commits. A page needs the result, the rounds
that were evaluated and, for intervals, the answers on the test set. With these in the page's own folder, a
reproduction goes on in another clone of the repository, and its page can be made again without training.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Units, units_of
from fedrel.evaluation.outcome import Record
from fedrel.files import atomic_file
from fedrel.runs.compare import is_finished
from fedrel.runs.folder import UNITS, read_json, read_run, write_json
from fedrel.runs.records import Environment, Result, Round
from fedrel.runs.train import is_over


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
    """A folder of them: two files a run, named after its method, its seed and the digest of its config."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, config: Config, run: Path) -> KeptRun | None:
        """The finished run of a config, as it was kept; one that is finished in its folder is kept now."""
        path = self._path(config)
        if path.exists():
            found: KeptRun = read_json(KeptRun, path)
            if is_over(config, found.result.rounds, found.result.best_round or 0):
                return found
        return self._keep(config, run) if is_finished(config, run) else None

    def units(self, config: Config) -> Units:
        """A kept run's answers on the test set."""
        from safetensors.numpy import load

        path = self._units_path(config)
        try:
            return units_of(load(lzma.decompress(path.read_bytes())))
        except (OSError, lzma.LZMAError) as error:
            hint = f"delete {self._path(config).name}, and the run is made again"
            raise UserError(f"cannot be read: {error}", file=path, hint=hint) from error

    def _keep(self, config: Config, folder: Path) -> KeptRun:
        run = read_run(folder)
        short = {"at_sites", "active", "watched", "class_distances"}
        found = KeptRun(
            result=run.result,
            environment=Environment.model_validate(run.environment),
            evaluated=[Round(**one.model_dump(exclude=short)) for one in run.rounds if one.dev or one.test],
            f1_by_relation={}
            if run.classes is None
            else {one.relation: one.f1 for one in run.classes.per_class},
            uploaded=run.per_site_and_round.up if run.per_site_and_round else None,
        )
        with atomic_file(self._units_path(config)) as path:
            path.write_bytes(lzma.compress((folder / UNITS).read_bytes()))
        write_json(self._path(config), found, indent=None)
        return found

    def _path(self, config: Config) -> Path:
        return self._folder / f"{config.method}-seed-{config.seed}-{config.digest()[:10]}.json"

    def _units_path(self, config: Config) -> Path:
        return self._path(config).with_suffix(".units.xz")
