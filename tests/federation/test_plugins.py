"""Methods from a user's file or notebook: which engines run them, and what other engines say.

Each runs in a process of its own: a method, once defined, is known to its process for good.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedrel
from fedrel.tensors import compiling
from tests.conftest import tiny
from tests.federation.test_engines import same

METHOD = """\
from typing import ClassVar

from fedrel.methods.fedavg import FedAvg


class Slower(FedAvg):
    name: ClassVar[str] = "slower"

    def loss(self, site, batch, reading):
        return 0.5 * super().loss(site, batch, reading)


class Plain(FedAvg):
    name: ClassVar[str] = "plain"
"""


def run_engine(folder: Path, kind: str) -> Path:
    """A run of the file's method on an engine, as `fedrel run` starts it."""
    (folder / "mine.py").write_text(METHOD)
    config = tiny(training__rounds=2, engine__kind=f'"{kind}"', engine__workers=2).to_toml()
    text = config.replace('method = "lazy-mil"', 'method = "slower"').replace(
        "plugins = []", 'plugins = ["mine.py"]'
    )
    assert '"slower"' in text and '"mine.py"' in text
    (folder / f"{kind}.toml").write_text(text)
    command = ["run", str(folder / f"{kind}.toml"), "--out", str(folder / kind)]
    subprocess.run([sys.executable, "-m", "fedrel", *command], check=True)
    return folder / kind


def test_a_method_of_a_users_file_runs_in_worker_processes(tmp_path):
    same(run_engine(tmp_path, "local"), run_engine(tmp_path, "workers"))


@pytest.mark.slow
def test_a_method_of_a_users_file_runs_in_flowers_simulation(tmp_path):
    pytest.importorskip("ray", reason="needs the extra `flower-simulation`")
    same(run_engine(tmp_path, "local"), run_engine(tmp_path, "flower-simulation"))


def run_script(folder: Path, current: Path) -> None:
    """A script runs a method of a module beside it in worker processes, started from another folder."""
    (folder / "ours.py").write_text(METHOD)
    config = tiny(training__rounds=1, method="ours:Slower", engine__kind='"workers"', engine__workers=2)
    (folder / "config.toml").write_text(config.to_toml())
    script = f"import fedrel\nfedrel.run({str(folder / 'config.toml')!r}, {str(folder / 'run')!r})"
    (folder / "script.py").write_text(script)
    current.mkdir(exist_ok=True)
    subprocess.run([sys.executable, folder / "script.py"], cwd=current, check=True)
    assert (folder / "run" / "result.json").exists()


def test_a_module_beside_the_script_is_found_in_worker_processes(tmp_path):
    run_script(tmp_path, tmp_path / "elsewhere")


@pytest.mark.slow
@pytest.mark.usefixtures("real_python")
def test_a_file_in_the_current_folder_is_not_imported_for_a_library(tmp_path):
    current = tmp_path / "elsewhere"
    current.mkdir()
    for name in ("random", "h2", "numpy", "torch", "fedrel"):
        (current / f"{name}.py").write_text("raise SystemExit('the file of the current folder was imported')")
    run_script(tmp_path, current)


def test_no_process_is_started_with_the_current_folder_on_its_path():
    started = {
        str(file): before
        for file in Path(fedrel.__path__[0]).rglob("*.py")
        for before in re.findall(r'(\S+)\s+"-m"', file.read_text(encoding="utf-8"))
    }
    assert len(started) >= 6
    assert set(started.values()) == {'"-P",'}


NOTEBOOK = (
    METHOD
    + """\
from pathlib import Path

from fedrel.errors import UserError
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.conftest import tiny

for method in ("slower", "plain"):
    for kind in ("local", "workers", "flower-simulation"):
        config = tiny(method=method, engine__kind=f'"{kind}"', engine__workers=2)
        ready = prepare(config)
        try:
            with engine(config, ready, Path("states")) as chosen:
                Session(config, ready, chosen, None).next_round()
                print(method, kind, type(chosen).__name__)
        except UserError as error:
            print(method, kind, error.problem)
            assert 'engine.kind = "local"' in error.hint
"""
)


def test_a_method_of_a_notebook_runs_in_its_own_process_only():
    """In one loop, or on threads where there are kernels; other processes could not import it."""
    done = subprocess.run(
        [sys.executable, "-"],  # as a cell of a notebook, the code is in no file
        input=NOTEBOOK,
        text=True,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    said = {}
    for line in done.stdout.splitlines():
        method, kind, what = line.split(" ", 2)
        said[method, kind] = what
    refused = (
        "the class {} is defined in this process only: "
        "worker processes and Flower's simulation cannot import it"
    )
    assert said["slower", "local"] == said["plain", "local"] == "LocalEngine"
    for method, name in (("slower", "Slower"), ("plain", "Plain")):
        on_threads = "ThreadEngine" if compiling.has_numba() else refused.format(name)
        assert said[method, "workers"] == on_threads
        assert said[method, "flower-simulation"] == refused.format(name)
