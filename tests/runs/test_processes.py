"""Several processes at one table of `fedrel reproduce`, and processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fedrel.cli.shared_runs import run_in_processes
from fedrel.files import is_in_use, locked
from fedrel.runs.folder import read_json
from fedrel.runs.plan import Plan
from fedrel.runs.reproduce import _wait_for_one_of, reproduce
from fedrel.runs.reproduction_record import Reproduction
from fedrel.runs.train import Watcher

ROUNDS = 3  # that a process trains, at least, before it is killed


def free_when_waited_for(monkeypatch: pytest.MonkeyPatch, *locks: ExitStack) -> list[list[Path]]:
    """Frees the next of these locks each time that `reproduce` waits; returns for what it did."""
    left, waited = list(locks), []

    def wait(folders: list[Path], _: float) -> None:
        waited.append(folders)
        left.pop(0).close()

    monkeypatch.setattr("fedrel.runs.reproduce._wait_for_one_of", wait)
    return waited


def test_what_another_process_is_at_is_done_last(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is passed over, then waited for: here the other process is killed as soon as it is waited for."""
    out, runs, trained, other = tmp_path / "out", tmp_path / "runs", [], ExitStack()
    waited = free_when_waited_for(monkeypatch, other)

    def watch(name: str, _: object) -> Watcher:
        return Watcher(finished=lambda _: trained.append((name, len(waited))))

    first, _ = (job.folder for job in Plan(f"{paper}/table2", out, runs, 1).jobs())
    other.enter_context(locked(first))
    found = reproduce(f"{paper}/table2", out, runs, seeds=1, watch=watch)
    assert trained == [("fedavg, few, seed 1", 0), ("one, few, seed 1", 1)]
    assert waited == [[first]]
    assert [len(cell.runs) for cell in found.cells] == [1, 1]


def test_a_search_that_another_process_is_at_is_waited_for_if_it_is_asked_for(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runs, other = tmp_path / "pages" / "out", tmp_path / "runs", ExitStack()
    waited = free_when_waited_for(monkeypatch, other)
    searched = {one.row: one.folder for one in Plan(f"{paper}/table1", out, runs, 1).searches.all}
    other.enter_context(locked(searched["fedavg"]))  # without its settings, the row is not trained either
    for rows, counts in ((["one"], [1, 0, 0]), ([], [1, 1, 1])):
        assert waited == []
        found = reproduce(f"{paper}/table1", out, runs, seeds=1, rows=rows)
        assert [len(cell.runs) for cell in found.cells if cell.column == "few"] == counts
    assert waited == [[searched["fedavg"]]]


def test_whichever_is_free_first_is_not_waited_for_longer(tmp_path: Path) -> None:
    with locked(tmp_path / "a"), ExitStack() as other:
        other.enter_context(locked(tmp_path / "b"))
        threading.Timer(0.2, other.close).start()
        _wait_for_one_of([tmp_path / "a", tmp_path / "b"], time.monotonic() + 60)
        assert not is_in_use(tmp_path / "b") and is_in_use(tmp_path / "a")


def test_waiting_for_another_process_ends_with_the_budget(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, clock = tmp_path / "runs", [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr("fedrel.runs.reproduce.time.sleep", sleep)
    monkeypatch.setattr("fedrel.runs.reproduce.time.monotonic", lambda: clock[0])
    with ExitStack() as others:
        for job in Plan(f"{paper}/table2", tmp_path / "out", runs, 1).jobs():
            others.enter_context(locked(job.folder))
        found = reproduce(f"{paper}/table2", tmp_path / "out", runs, seeds=1, budget=60)
    assert not any(cell.runs for cell in found.cells)
    assert 60 < clock[0] < 62


def test_what_another_process_has_left_is_taken_up(paper: Path, tmp_path: Path) -> None:
    runs, stack = tmp_path / "runs", ExitStack()
    first, _ = (job.folder for job in Plan(f"{paper}/table2", tmp_path / "out", runs, 1).jobs())
    stack.enter_context(locked(first))

    def watch(_: str, __: object) -> Watcher:
        return Watcher(finished=lambda _: stack.close())  # the other one dies while the second run is trained

    found = reproduce(f"{paper}/table2", tmp_path / "out", runs, seeds=1, watch=watch)
    assert [len(cell.runs) for cell in found.cells] == [1, 1]


@pytest.mark.programs
@pytest.mark.usefixtures("real_python")
def test_processes_share_the_runs_of_a_table(paper: Path, tmp_path: Path) -> None:
    alone = reproduce(f"{paper}/table1", tmp_path / "alone", tmp_path / "runs-alone", seeds=2)
    command = [sys.executable, "-m", "fedrel", "reproduce", f"{paper}/table1", "--seeds", "2"]
    folders = ["--out", str(tmp_path / "shared" / "out"), "--runs", str(tmp_path / "shared" / "runs")]
    jobs = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    said = subprocess.run([*command, *folders, "--jobs", jobs], capture_output=True, text=True, check=True)
    assert "6 of 6 runs are finished" in said.stdout
    assert said.stdout.count("one, few, seed 2: 900 sentences") >= 1  # what the processes say is passed on
    shared: Reproduction = read_json(Reproduction, tmp_path / "shared" / "out" / "reproduction.json")
    values = [[[run.value for run in cell.runs] for cell in one.cells] for one in (alone, shared)]
    assert values[0] == values[1]
    many = subprocess.run([*command, *folders, "--jobs", "4096"], capture_output=True, text=True, check=False)
    assert many.returncode == 2
    assert "--jobs 4096: this process may use" in many.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signals")
def test_a_killed_process_is_not_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, said = tmp_path / "program", []
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert run_in_processes(1, ["reproduce"], said.append) == 128 + 9
    assert said == ["one of 1 processes was killed by SIGKILL"]


def without_seconds(folder: Path) -> dict[str, Any]:
    found = read_json(Reproduction, folder / "reproduction.json").model_dump()
    for cell in found["cells"]:
        for run in cell["runs"]:
            del run["seconds"]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signals")
@pytest.mark.usefixtures("real_python")
def test_a_reproduction_that_is_killed_goes_on_to_the_same_page(paper: Path, tmp_path: Path) -> None:
    def command(name: str) -> list[str]:
        folders = ["--out", str(tmp_path / name / "out"), "--runs", str(tmp_path / name / "runs")]
        return [sys.executable, "-m", "fedrel", "reproduce", f"{paper}/table1", "--seeds", "2", *folders]

    def trained() -> int:
        files = (tmp_path / "killed" / "runs").rglob("metrics.jsonl")
        return sum(file.read_bytes().count(b"\n") for file in files)

    config = paper.parent / "config.toml"
    config.write_text(config.read_text().replace("rounds = 4", "rounds = 16"))
    subprocess.run(command("alone"), capture_output=True, check=True)
    moments, kills = random.Random(0), 0
    while True:
        before = trained()
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and trained() < before + ROUNDS:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.05))
        process.kill()
        code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        assert kills < 30
    assert kills >= 3
    assert without_seconds(tmp_path / "killed" / "out") == without_seconds(tmp_path / "alone" / "out")
