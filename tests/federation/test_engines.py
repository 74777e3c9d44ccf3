"""On one thread, on several, in processes, killed and resumed: the same weights to the bit, the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrel.config.schema import Config
from fedrel.deployment.submit import wait_until_unlocked
from fedrel.errors import UserError
from fedrel.federation.coordinator import Engine
from fedrel.federation.engines.in_process import ThreadEngine
from fedrel.federation.engines.processes import WorkerEngine
from fedrel.federation.messages import Arrays
from fedrel.federation.runner import Runner
from fedrel.federation.site_memory import Entry
from fedrel.files import locked, read_sealed, sealed
from fedrel.runs.engines import SimulatedSites, new_runner, parallel_engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from fedrel.tensors import compiling
from tests.conftest import tiny


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model" / "weights.safetensors")


def rounds(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return lines


def same(one: Path, other: Path) -> None:
    assert rounds(one) == rounds(other)
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.fixture
def processes(monkeypatch):
    """Workers are processes, even where they would be threads."""
    monkeypatch.setattr(Runner, "runs_kernels", lambda _: False)


@pytest.mark.parametrize("method", ["lazy-mil", "att-ra", "one"])
def test_workers_give_the_same_weights_and_bytes(method, tmp_path, processes):
    run(tiny(method=f'"{method}"'), tmp_path / "local")
    run(tiny(method=f'"{method}"', engine__kind="workers", engine__workers=2), tmp_path / "workers")
    same(tmp_path / "local", tmp_path / "workers")


def thread_engine(config: Config, tmp_path: Path, threads: int) -> ThreadEngine:
    """Threads, whatever the engine would choose: they must do for any method."""
    ready = prepare(config)
    return ThreadEngine([new_runner(config, ready.site_data, tmp_path / "sites") for _ in range(threads)])


class SitesOn(SimulatedSites):
    """Simulated sites with an engine that the test chooses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def engine(self, *_: object, **__: object) -> AbstractContextManager[Engine]:
        return nullcontext(self._engine)


@pytest.mark.parametrize("method", ["lazy-mil", "att-ra+scaffold", "moon"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_give_the_same_weights_and_bytes(method, threads, tmp_path):
    config = tiny(method=f'"{method}"', training__rounds=2)
    run(config, tmp_path / "local")
    with thread_engine(config, tmp_path, threads) as engine:
        run(config, tmp_path / "threads", sites=SitesOn(engine))
    same(tmp_path / "local", tmp_path / "threads")


def test_many_sites_go_to_threads_several_at_a_time(tmp_path):
    config = tiny(training__rounds=2, training__fraction=1.0, partition__sites=200)
    run(config, tmp_path / "local")
    with thread_engine(config, tmp_path, 2) as engine:
        run(config, tmp_path / "threads", sites=SitesOn(engine))
    assert len(rounds(tmp_path / "threads")[0]["active"]) == 200
    same(tmp_path / "local", tmp_path / "threads")


@pytest.mark.skipif(not compiling.has_numba(), reason="without kernels, workers are processes")
@pytest.mark.parametrize("method", ["lazy-mil", "att", "lazy-mil+fedprox", "moon"])
def test_workers_are_threads_where_kernels_do_most_of_the_work(method, tmp_path):
    """Also of a method that is trained through the graph, as MOON is."""
    config = tiny(method=f'"{method}"')
    with parallel_engine(config, prepare(config).site_data, tmp_path, 2) as engine:
        assert isinstance(engine, ThreadEngine)


def test_elsewhere_workers_are_processes(tmp_path, processes):
    config = tiny(method="att")
    with parallel_engine(config, prepare(config).site_data, tmp_path, 2) as engine:
        assert isinstance(engine, WorkerEngine)


def test_an_error_on_a_thread_ends_the_request(tmp_path, monkeypatch):
    """What goes wrong on a thread is raised where the question was put; no other site is begun."""
    config, begun = tiny(), []

    def answer(_: Runner, __: str, ___: int, site: int, *____: Arrays) -> tuple[Arrays, Entry]:
        begun.append(site)
        if site == 2:
            raise UserError("site 2 has lost its file")
        return {"site": np.array(site)}, Entry()

    monkeypatch.setattr(Runner, "answer", answer)
    with thread_engine(config, tmp_path, 2) as engine:
        answers = engine.ask("train", 1, {}, {site: {} for site in range(50)})
        assert [next(answers)[0], next(answers)[0]] == [0, 1]
        with pytest.raises(UserError, match="site 2 has lost its file"):
            next(answers)
        assert len(begun) < 50
        monkeypatch.setattr(Runner, "answer", lambda *_: ({}, Entry()))
        assert [site for site, _ in engine.ask("train", 1, {}, {7: {}, 9: {}})] == [7, 9]


def test_threads_wait_for_the_interpreter_only_while_they_work(tmp_path):
    before = sys.getswitchinterval()
    with thread_engine(tiny(), tmp_path, 2):
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == before


def test_a_refused_request_is_a_failure_on_threads_too(tmp_path):
    with thread_engine(tiny(), tmp_path, 2) as engine:
        ((site, answer),) = engine.ask("train", 1, {}, {4: {}})
    assert site == 4 and answer.arrays is None
    assert answer.failure == "refused the request: the request for train lacks Model"


def command(config: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "fedrel", "run", str(config), "--out", str(out), "--resume"]


def test_a_run_killed_at_random_moments_resumes_to_the_same_weights(tmp_path):
    config = tiny(method="lazy-mil", training__rounds=6, engine__kind="workers", engine__workers=2)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    run(config, tmp_path / "whole")
    moment, killed = random.Random(4), 0
    environment = os.environ | {"COLUMNS": "200"}
    for _ in range(4):
        process = subprocess.Popen(
            command(path, tmp_path / "killed"), env=environment, start_new_session=True
        )
        begun = time.monotonic()
        checkpoint = tmp_path / "killed" / "checkpoint"
        while not checkpoint.exists() and process.poll() is None and time.monotonic() < begun + 60:
            time.sleep(0.02)
        time.sleep(moment.uniform(0, 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    subprocess.run(command(path, tmp_path / "killed"), env=environment, check=True)
    assert killed > 0
    same(tmp_path / "whole", tmp_path / "killed")


def test_more_rounds_of_a_finished_run_equal_one_long_run(tmp_path):
    run(tiny(method="one", training__rounds=2), tmp_path / "parts")
    run(tiny(method="one", training__rounds=4), tmp_path / "parts", resume=True)
    run(tiny(method="one", training__rounds=4), tmp_path / "whole")
    same(tmp_path / "parts", tmp_path / "whole")


def test_a_folder_in_which_another_process_works_is_refused(tmp_path):
    config, out = tiny(training__rounds=1), tmp_path / "run"
    with locked(out), pytest.raises(UserError, match="another process works in this folder"):
        run(config, out)
    assert not out.exists()  # nothing was left in it
    run(config, out)


def test_a_folder_in_which_another_process_works_can_be_waited_for(out):
    said: list[str] = []
    with locked(out):
        wait_until_unlocked(out, 0.3, said.append)  # in vain
    assert said == [f"waiting for the process to end that works in {out}"]
    out.mkdir()
    wait_until_unlocked(out, 3600, said.append)
    assert len(said) == 1


def test_a_checkpoint_of_another_config_is_refused(out):
    run(tiny(training__rounds=1), out)
    with pytest.raises(UserError, match="there is a run in this folder already"):
        run(tiny(training__rounds=1), out)
    with pytest.raises(UserError, match=r"training\.learning_rate was 0\.3, is 0\.2"):
        run(tiny(training__rounds=2, training__learning_rate=0.2), out, resume=True)


def test_fewer_rounds_and_other_data_are_refused(out):
    run(tiny(training__rounds=2), out)
    with pytest.raises(UserError, match="has 2 rounds already"):
        run(tiny(training__rounds=1), out, resume=True)
    about = read_sealed(out / "environment.json", "an environment", "")
    (out / "environment.json").write_text(json.dumps(sealed(about | {"data_fingerprint": "another"})))
    with pytest.raises(UserError, match="the data are not those"):
        run(tiny(training__rounds=3), out, resume=True)


def test_a_damaged_checkpoint_is_refused(out):
    run(tiny(training__rounds=1), out)
    (out / "checkpoint" / "round-00001.safetensors").write_bytes(b"rubbish")
    with pytest.raises(UserError, match="is not a checkpoint"):
        run(tiny(training__rounds=2), out, resume=True)
