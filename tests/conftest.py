"""What many tests share: a small world, cached once a session, a config that trains in seconds, a quick Python."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from fedrel.config.check import check
from fedrel.config.schema import Config
from tests.quick_python import QuickPython

if TYPE_CHECKING:
    from fedrel.federation.engines.in_process import LocalEngine
    from fedrel.runs.prepare import Preparation
    from fedrel.runs.train import Session

NO_STATES = Path("no-states")  # where sites would remember things, for methods that remember nothing

REAL_DATA = os.environ.get("FEDREL_DATA")  # where real corpora are, for the tests that ask for them
FLOWER = (  # where tests start Flower's processes
    "tests/federation_e2e/",
    "tests/federation/test_plugins.py",
    "tests/deployment/test_pages.py",
    "tests/deployment/test_unknown_sites.py",
)
QUICK, REAL = pytest.StashKey[QuickPython](), sys.executable


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples a property is tried on, and start the quick Python, one for all processes."""
    fast = "not slow" in config.option.markexpr
    settings.register_profile("suite", deadline=None, max_examples=20 if fast else 100)
    settings.load_profile("suite")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a suite in a shell's background
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # so that tests' processes can be interrupted
    if not hasattr(config, "workerinput"):
        os.environ["OMP_NUM_THREADS"] = "1"  # tensors as small as these are slower with two threads
        config.stash[QUICK] = QuickPython()
        os.environ["FEDREL_QUICK_PYTHON"] = str(config.stash[QUICK].bin)


def pytest_collection() -> None:
    """Look for no garbage while tests are collected: almost all that is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on, do not look for garbage in what was imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, so that they share what they make; Flower's one after the other."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "flower" if nodeid.startswith(FLOWER) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # or Flower's would come last, in one process
    return ByFile(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop it."""
    if QUICK in config.stash:
        config.stash[QUICK].stop()


@pytest.fixture(scope="session", autouse=True)
def _quick_python() -> Iterator[None]:
    """`sys.executable`, and `python`, `fedrel` and `pytest` of the `PATH`, start without importing torch anew."""
    quick = os.environ["FEDREL_QUICK_PYTHON"]
    with python_is(f"{quick}/python", quick, str(Path(REAL).parent)):
        yield


@pytest.fixture
def real_python() -> Iterator[None]:
    """A command is a new process in all respects: for tests of what it imports, and of how processes end."""
    with python_is(REAL, str(Path(REAL).parent)):
        yield


@contextmanager
def python_is(executable: str, *path: str) -> Iterator[None]:
    """Another Python for processes that are started meanwhile; `path` is looked through for programs first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        patch.setenv("PATH", os.pathsep.join([*path, os.environ["PATH"]]))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """In this process as engines have it: which of PyTorch's loops are used depends on the call, too."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _stderr_stays_open() -> None:
    """Test files import dp-accounting, which imports absl, while pytest captures what is written."""
    if "absl" in sys.modules:
        from fedrel.privacy.differential_privacy import spare_stderr

        spare_stderr()


@pytest.fixture(scope="session", autouse=True)
def _on_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's cache, and find no data by accident."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDREL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FEDREL_DATA", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(_quick_python: None) -> None:
    """Of several processes that run tests, one compiles the kernels that are not on disk; others wait for it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        subprocess.run([sys.executable, "-m", "fedrel.extractors.pcnn.all_kernels"], check=True)


def tiny(**changes: object) -> Config:
    """An experiment of a few seconds; keyword arguments are keys with `__` for the dot."""
    config = check(
        Config,
        {
            "data": {"corpus": "world", "sentences": 1000, "relations": 5, "noise": 0.4, "mean_length": 14},
            "partition": {"kind": "iid", "sites": 6},
            "extractor": {"word_dimension": 8, "filters": 12, "dropout": 0.3},
            "training": {"rounds": 3, "fraction": 0.5, "epochs": 2, "batch_size": 16, "learning_rate": 0.3},
            "engine": {"kind": "local"},
        },
        "test",
    )
    settings = [f"{key.replace('__', '.')}={_toml(value)}" for key, value in changes.items()]
    return config.with_settings(settings)


def local_engine(config: Config, ready: Preparation, states: Path = NO_STATES) -> LocalEngine:
    """The in-process engine over the prepared data; `states` is where sites would keep their state."""
    from fedrel.federation.engines.in_process import LocalEngine
    from fedrel.runs.engines import new_runner

    return LocalEngine(new_runner(config, ready.site_data, states))


def local_session(config: Config, ready: Preparation, states: Path = NO_STATES) -> Session:
    """A run's rounds on the in-process engine, before the first one."""
    from fedrel.runs.train import Session

    return Session(config, ready, local_engine(config, ready, states), None)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for a run."""
    return tmp_path / "run"
