"""Methods from outside the package: installed, by `module:Class`, in a file of the user's, in a notebook.

Each runs in a process of its own, for a class that was once imported would be found by every later test.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrel.config.plugins import Listed, Registry
from fedrel.errors import UserError
from fedrel.federation.method import Method
from fedrel.methods.by_name import method, methods, parts

ROOT = Path(__file__).parents[2]
MEDIAN = ROOT / "docs" / "examples" / "median_method.py"

PULLED = '''
from typing import ClassVar

from pydantic import Field

from fedrel.methods.fedavg import FedAvg


class Halved(FedAvg):
    """FedAvg whose sites learn half as much from each batch."""

    name: ClassVar[str] = "halved"

    mu: float = Field(0.5, gt=0)
    """The factor of the loss."""

    def loss(self, site, batch, reading):
        return self.mu * super().loss(site, batch, reading)
'''

START = """
import sys
from pathlib import Path

import numpy as np

from fedrel.config.plugins import load_files
from fedrel.errors import UserError
from fedrel.federation.runner import Runner
from fedrel.methods.by_name import method, methods, parts
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.conftest import tiny

CONFIG = tiny(training__rounds=2)
READY = prepare(CONFIG)


def trained(name, *settings):
    config = CONFIG.with_settings([f"method={name}", *settings])
    with engine(config, READY, Path(f"{name} {settings}".replace("/", "_"))) as carrier:
        session = Session(config, READY, carrier, None)
        for _ in range(2):
            session.next_round()
    return session.checkpoint().weights, type(carrier).__name__


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def refused(name, *settings):
    try:
        trained(name, *settings)
    except UserError as error:
        return str(error)


def in_processes(way, name, *settings):
    # As where there are no kernels, which would train on threads.
    own, Runner.runs_kernels = Runner.runs_kernels, lambda _: False
    try:
        return way(name, *settings, *WORKERS)
    finally:
        Runner.runs_kernels = own


WORKERS = ("engine.kind=workers", "engine.workers=2")
FEDAVG, _ = trained("fedavg")
"""


def in_a_new_process(folder: Path, script: str, *path: Path) -> None:
    """Run a script like a notebook's cells: its classes are in `__main__`."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT, *sys.path))),
        "FEDREL_CACHE": os.environ["FEDREL_CACHE"],
    }
    command = [sys.executable, "-c", START + script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def install(folder: Path, entry: str, group: str = "fedrel.methods") -> None:
    """Make a folder look like the place of an installed distribution that declares an entry point."""
    about = folder / "halved_methods-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: halved-methods\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


def test_an_installed_package_brings_a_method_that_worker_processes_find_too(tmp_path):
    install(tmp_path / "installed", "halved = halved_methods:Halved")
    (tmp_path / "installed" / "halved_methods.py").write_text(PULLED)
    in_a_new_process(
        tmp_path,
        """
assert methods()["halved"].__module__ == "halved_methods"
local, _ = trained("halved")
workers, carrier = in_processes(trained, "halved")
assert carrier == "WorkerEngine" and same(local, workers) and not same(local, FEDAVG)
whole, _ = trained("halved", "methods.halved.mu=1.0")  # through the graph what kernels do for FedAvg
assert all(np.allclose(whole[name], FEDAVG[name], atol=1e-5) for name in whole)
both = method("fedprox+halved", {"fedprox": {"mu": 0.25}, "halved": {"mu": 0.75}})
assert [both.part(kind).mu for kind in parts("fedprox+halved")] == [0.25, 0.75]
""",
        tmp_path / "installed",
    )


def test_a_class_is_named_by_its_module_and_one_of_a_file_by_the_config(tmp_path):
    (tmp_path / "halved_module.py").write_text(PULLED)
    (tmp_path / "another.py").write_text(PULLED)
    in_a_new_process(
        tmp_path,
        f"""
local, _ = trained("halved_module:Halved", "methods.halved.mu=0.25")
workers, carrier = in_processes(trained, "halved_module:Halved", "methods.halved.mu=0.25")
assert carrier == "WorkerEngine" and same(local, workers) and not same(local, FEDAVG)
assert same(local, trained("halved", "methods.halved.mu=0.25")[0])  # imported, it has a name
assert not same(local, trained("one+halved_module:Halved")[0])

load_files([Path({str(MEDIAN)!r})])
median, _ = trained("median")
threads, carrier = trained("median", *WORKERS)
assert carrier == "ThreadEngine" and same(median, threads) and not same(median, FEDAVG)
assert "both define `round`" in refused("lazy-mil+median")
assert "median does not use `aggregator`" in refused("fedatt+median")
assert not same(trained("fedprox+median")[0], median)

load_files([Path("another.py")])
problem = refused("fedavg")
assert "two methods are called 'halved': halved_module:Halved and fedrel_plugin_another" in problem, problem
assert "rename one of them" in problem
""",
        tmp_path,
    )


def test_a_class_of_a_notebook_runs_in_this_process_and_on_threads(tmp_path):
    in_a_new_process(
        tmp_path,
        """
from typing import ClassVar

from fedrel.methods.fedavg import FedAvg


class Slower(FedAvg):
    name: ClassVar[str] = "slower"

    def server_update(self, fed, mean):
        return {name: (old + mean[name]) / 2 for name, old in fed.weights.items()}


first, _ = trained("slower")


class Slower(FedAvg):  # the cell is run again, with a change
    name: ClassVar[str] = "slower"
    share: float = 0.25

    def server_update(self, fed, mean):
        return {name: old + np.float32(self.share) * (mean[name] - old) for name, old in fed.weights.items()}


local, _ = trained("slower")
threads, carrier = trained("slower", *WORKERS)
assert carrier == "ThreadEngine" and same(local, threads) and not same(local, first)
problem = in_processes(refused, "fedprox+slower")
assert "the class Slower is defined in this process only" in problem, problem
assert 'set engine.kind = "local"' in problem
""",
    )


def test_classes_are_found_as_soon_as_they_are_defined_and_no_longer_than_they_exist():
    class Base(Listed):
        name = ""

    known = Registry(Base, package="fedrel.config", group="fedrel.nothing", what="base")
    assert known.all() == {}
    first = type("First", (Base,), {"name": "one"})
    assert known.all() == {"one": first} and known.find("one") is first
    again = type("Again", (first,), {"name": "one"})  # in the same module: it takes the other's place
    assert known.find("one") is again
    unnamed = type("Unnamed", (first,), {})
    below = type("Below", (unnamed,), {"name": "two"})
    assert known.all() == {"one": again, "two": below}
    del again, below
    gc.collect()
    assert known.find("one") is first and list(known.all()) == ["one"]
    with pytest.raises(UserError, match="no base is called 'two'"):
        known.find("two")


def test_an_installed_package_that_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    install(tmp_path, "broken = no_such_module:Class", "fedrel.test-methods")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry(Method, package="fedrel.methods", group="fedrel.test-methods", what="method")
    with pytest.raises(UserError, match=r"cannot load 'no_such_module:Class', which an installed package"):
        registry.all()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:Class", "cannot import the method 'no_such_module:Class': No module named"),
        ("fedrel.methods.moon:Moon", "cannot import the method 'fedrel.methods.moon:Moon'"),
        ("fedrel.methods.moon:Anchors", "is no method: expected a subclass of Method"),
    ],
)
def test_a_class_that_is_not_there_or_no_method_is_refused(name, problem):
    with pytest.raises(UserError, match=problem):
        method(f"fedprox+{name}", {})


def test_a_method_of_the_package_can_be_named_by_its_module_too():
    assert parts("fedrel.methods.moon:MOON+fedprox") == [methods()["moon"], methods()["fedprox"]]


def test_the_example_of_the_documentation_is_shown_there_as_it_is():
    page = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
    code = MEDIAN.read_text(encoding="utf-8")
    assert f"```python\n# file: median_method.py\n{code}```" in page
    assert len(code.splitlines()) < 60
