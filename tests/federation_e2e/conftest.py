"""What these tests share: an experiment that fits all methods under test, and its folders, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fedrel.config.schema import Config
from fedrel.deployment.server_app import RemoteSites
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from tests.conftest import REAL, python_is, tiny
from tests.federation_e2e.dividing import prepared_for
from tests.federation_e2e.testbed import NAMES, Testbed

Local = Callable[[Config], Path]


@pytest.fixture(scope="package", autouse=True)
def _real_python() -> Iterator[None]:
    """Processes are real ones here: they are looked for, killed, and must end with those who started them."""
    with python_is(REAL, str(Path(REAL).parent)):
        yield


def experiment(method: str = "lazy-mil", **changes: object) -> Config:
    """Three sites and a coordinator with labelled sentences of its own; the same data, whatever the method."""
    settings = {
        "partition__sites": len(NAMES),
        "partition__coordinator": 0.2,
        "extractor__bias": False,
        "training__fraction": 1.0,
        "training__rounds": 2,
        "case_study": 0,
    }
    return tiny(method=f'"{method}"', **(settings | changes))


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Local:
    """The same experiment by the in-process engine: what every other must agree with."""
    done: dict[str, Path] = {}

    def by_local(config: Config) -> Path:
        key = config.model_dump_json(exclude={"engine"})
        if key not in done:
            done[key] = tmp_path_factory.mktemp("local") / "run"
            run(config.with_settings(["engine.kind=local"]), done[key])
        return done[key]

    return by_local


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation's folders, to be copied."""
    config = experiment()
    made = Testbed(tmp_path_factory.mktemp("folders") / "federation")
    made.make(config, prepare(config))
    return made.folder


class Called:
    """A federation whose nodes are called in this process: everything but the network is real."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        from tests.federation_e2e.grid import CalledGrid

        self.bed = Testbed(folder, names=names)
        self.grid = CalledGrid([self.bed.site(name).path for name in names])

    def run(self, config: Config, out: Path, *, resume: bool = False) -> Path:
        for name in self.bed.names:
            prepared_for(config, self.bed.site(name).path)
        sites = RemoteSites(self.grid.as_grid(), self.bed.coordinator.path, config.extractor.kind)
        run(config, out, resume=resume, sites=sites)
        return out


@pytest.fixture
def called(folders: Path, tmp_path: Path) -> Called:
    return Called(copied(folders, tmp_path / "federation"))


@pytest.fixture
def federation(folders: Path, tmp_path: Path) -> Iterator[Testbed]:
    """A federation of real processes; whatever is started ends with the test."""
    with Testbed(copied(folders, tmp_path / "federation")) as bed:
        bed.move_ports()
        yield bed


def copied(folders: Path, to: Path) -> Path:
    """Folders name their corpora by absolute paths: the copy must name its own."""
    shutil.copytree(folders, to)
    for file in to.rglob("materials.json"):
        file.write_text(file.read_text().replace(str(folders), str(to)))
    return to
