"""Kernels that are compiled before they are needed."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

import pytest

from fedrel.tensors import ahead, compiling

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)


class Process:
    """A process that only notes what is done with it."""

    def __init__(self, command: list[str], **_: object) -> None:
        self.command, self.done = command, list[str]()
        started.append(self)

    def terminate(self) -> None:
        self.done.append("terminated")

    def wait(self) -> None:
        self.done.append("waited for")


started: list[Process] = []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    started.clear()
    monkeypatch.setattr(ahead, "kernel_folder", lambda package: tmp_path / package)
    monkeypatch.setattr(ahead.subprocess, "Popen", Process)
    monkeypatch.setattr(gc, "disable", lambda: None)
    level = logging.getLogger("fedrel").level
    yield Path("kernels")
    logging.getLogger("fedrel").setLevel(level)


def test_a_part_is_compiled_once(folder: Path) -> None:
    calls: list[str] = []
    parts = {name: lambda name=name: calls.append(name) for name in ("one", "two", "three")}
    for names in (["one"], ["one", "two"], ["two"]):
        ahead.compile_parts(folder, parts, names)
    assert calls == ["one", "two"]


def test_a_part_that_fails_is_not_taken_for_compiled(folder: Path) -> None:
    calls: list[str] = []
    with pytest.raises(ZeroDivisionError):
        ahead.compile_parts(folder, {"one": lambda: 1 // 0}, ["one"])
    ahead.compile_parts(folder, {"one": lambda: calls.append("one")}, ["one"])
    assert calls == ["one"]


def test_processes_compile_what_is_missing_while_the_block_runs(folder: Path) -> None:
    ahead.compile_parts(folder, {"one": lambda: None}, ["one"])
    with ahead.compiled_meanwhile("some.module", folder, ["one", "two", "three"]):
        assert [process.command for process in started] == [
            [sys.executable, "-P", "-m", "some.module", part] for part in ("two", "three")
        ]
        assert not any(process.done for process in started)
    assert [process.done for process in started] == [["waited for"]] * 2


def test_if_the_block_fails_so_do_they(folder: Path) -> None:
    with pytest.raises(KeyError), ahead.compiled_meanwhile("some.module", folder, ["one"]):
        raise KeyError
    assert [process.done for process in started] == [["terminated", "waited for"]]


def test_without_numba_nothing_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "has_numba", lambda: False)
    with ahead.compiled_meanwhile("some.module", folder, ["one"]):
        pass
    assert started == []
