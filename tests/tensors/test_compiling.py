"""Where compiled kernels come from and are kept, and those that are compiled before they are needed."""

from __future__ import annotations

import ast
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import fedrel
from fedrel.tensors import compiling

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)

ADD = """
import numpy as np
from fedrel.tensors.array_kernels import add
total = np.zeros(3)
add(total, np.arange(3, dtype=np.float32), 0.5)
print(total)
"""
SUM = "[0.  0.5 1. ]\n"


def said(**environment: str) -> str:
    """What a process of its own says when it uses a kernel."""
    command = [sys.executable, "-c", ADD]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    assert done.stdout == SUM
    return done.stderr


def test_the_first_use_says_that_it_compiles_and_keeps_the_result(tmp_path: Path) -> None:
    assert "compiling kernels" in said(NUMBA_CACHE_DIR=str(tmp_path))
    assert said(NUMBA_CACHE_DIR=str(tmp_path)) == ""


@pytest.mark.slow
def test_nothing_but_the_temporary_folder_can_be_written(tmp_path: Path) -> None:
    """As with a read-only installation and home. (Files stand where folders should: that stops root, too.)"""
    nowhere = tmp_path / "file"
    nowhere.touch()
    package = Path(fedrel.__file__).parent
    copied = shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "tensors" / "__pycache__").touch()
    unwritable = {name: str(nowhere / "folder") for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    complaint = said(**unwritable, FEDREL_CACHE=str(nowhere / "folder"), PYTHONPATH=str(tmp_path))
    assert "compiling kernels" in complaint and "cannot keep" in complaint


def test_kernels_need_no_folder_to_be_kept_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    said(NUMBA_CACHE_DIR=str(nowhere / "cache"))

    monkeypatch.setattr("numba.config.CACHE_DIR", str(nowhere / "cache"))
    monkeypatch.setenv("FEDREL_CACHE", str(nowhere / "corpora"))
    folder = compiling.kernel_folder.__wrapped__(nowhere / "kernels")
    folder.mkdir()
    tempfile.TemporaryFile(dir=folder).close()


KERNELS = """
import numba
import numpy as np
from fedrel.tensors.compiling import allocating_kernel, inner, kernel

@inner
def largest(numbers):
    if len(numbers) > 5:
        raise ValueError("too many")
    return max(numbers[0], numbers[-1])

@inner
def twice(numbers):
    return 2 * largest(numbers)

@allocating_kernel
def first(numbers):
    return twice(numbers) + largest(numbers) + np.zeros(2)[0]

@kernel
def second(numbers):
    return twice(numbers)

@numba.njit
def foreign(numbers):
    return twice(numbers) + np.zeros(3)[1]

def raised(function):
    try:
        function(np.arange(6.0))
    except ValueError as error:
        return str(error)
"""


USE = """
import numpy as np
import some_kernels as k
from fedrel.tensors.kernel_parts import PartLibrary

print(k.first(np.arange(3.0)), k.second(np.arange(4.0)), k.raised(k.first), k.raised(k.second))
for function in (k.first, k.second, k.largest, k.twice):
    for made in function.overloads.values():
        print(function.__name__, isinstance(made.library, PartLibrary), made.library._compiled_object is not None)
print(sum(k.first.stats.cache_hits.values()))
print(k.foreign(np.arange(3.0)), k.raised(k.foreign))
"""


@pytest.mark.slow
def test_functions_that_kernels_call_have_no_machine_code_of_their_own(tmp_path: Path) -> None:
    """Else a kernel would call that, which is not optimised, in the process that compiles it, and only there."""
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    command = [sys.executable, "-c", USE]
    fresh, loaded = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
        for _ in range(2)
    )
    assert fresh[0] == loaded[0] == "6.0 6.0 too many too many"
    assert fresh[1:6] == [
        "first False True", "second False True", "largest True False", "twice True False", "0",
    ]  # fmt: skip
    assert loaded[1:4] == ["first False False", "second False False", "1"]
    assert fresh[6] == loaded[4] == "4.0 too many"  # a function of somebody else that calls them


def decorated(name: str) -> dict[str, ast.FunctionDef]:
    """All functions of the package that have this decorator, by name."""
    trees = [ast.parse(file.read_text()) for file in Path(fedrel.__file__).parent.rglob("*.py")]
    functions = [one for tree in trees for one in tree.body if isinstance(one, ast.FunctionDef)]
    return {
        one.name: one
        for one in functions
        if name in [ast.unparse(decorator) for decorator in one.decorator_list]
    }


def test_no_kernel_that_counts_references_is_given_arrays_by_a_function_that_does_not() -> None:
    """It would give them back one time too often, and memory would be freed that is in use."""
    numbers = {"None", "bool", "int", "float", "np.uint32", "np.uint64", "np.float32"}
    arrays = {name for name, one in decorated("inner").items() if ast.unparse(one.returns) not in numbers}
    counting = decorated("allocating_kernel")
    assert "gather_sentences" in arrays and "changed_rows" in counting
    for name, function in counting.items():
        called = {ast.unparse(call.func) for call in ast.walk(function) if isinstance(call, ast.Call)}
        assert not called & arrays, name


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    started.clear()
    monkeypatch.setattr(compiling, "kernel_folder", lambda package: tmp_path / package)
    monkeypatch.setattr(compiling.subprocess, "Popen", Process)
    monkeypatch.setattr(gc, "disable", lambda: None)
    level = logging.getLogger("fedrel").level
    yield Path("kernels")
    logging.getLogger("fedrel").setLevel(level)


def test_a_part_is_compiled_once(folder: Path) -> None:
    calls: list[str] = []
    parts = {name: lambda name=name: calls.append(name) for name in ("one", "two", "three")}
    for names in (["one"], ["one", "two"], ["two"]):
        compiling.compile_parts(folder, parts, names)
    assert calls == ["one", "two"]


def test_a_part_that_fails_is_not_taken_for_compiled(folder: Path) -> None:
    calls: list[str] = []
    with pytest.raises(ZeroDivisionError):
        compiling.compile_parts(folder, {"one": lambda: 1 // 0}, ["one"])
    compiling.compile_parts(folder, {"one": lambda: calls.append("one")}, ["one"])
    assert calls == ["one"]


def test_processes_compile_what_is_missing_while_the_block_runs(folder: Path) -> None:
    compiling.compile_parts(folder, {"one": lambda: None}, ["one"])
    with compiling.compiled_meanwhile("some.module", folder, ["one", "two", "three"]):
        assert [process.command for process in started] == [
            [sys.executable, "-P", "-m", "some.module", part] for part in ("two", "three")
        ]
        assert not any(process.done for process in started)
    assert [process.done for process in started] == [["waited for"]] * 2


def test_if_the_block_fails_so_do_they(folder: Path) -> None:
    with pytest.raises(KeyError), compiling.compiled_meanwhile("some.module", folder, ["one"]):
        raise KeyError
    assert [process.done for process in started] == [["terminated", "waited for"]]


def test_without_numba_nothing_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "has_numba", lambda: False)
    with compiling.compiled_meanwhile("some.module", folder, ["one"]):
        pass
    assert started == []
