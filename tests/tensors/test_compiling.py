"""Where compiled kernels come from and are kept."""

from __future__ import annotations

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

NUMBER = """
import numpy as np
from fedrel.extractors.pcnn.kernels.sentence_vectors import _number_words
ids, slot, known, rows = np.array([3, 1, 3]), np.full(4, -1, np.int32), np.empty(4, np.int64), np.empty(3, np.int64)
print(_number_words(ids, slot, known, 0, rows), rows)
"""


def number(**environment: str) -> tuple[str, str]:
    """What a kernel finds in a process of its own, and what that says."""
    done = subprocess.run(
        [sys.executable, "-c", NUMBER],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_the_first_use_says_that_it_compiles_and_keeps_the_result(tmp_path: Path) -> None:
    numbered, said = number(NUMBA_CACHE_DIR=str(tmp_path))
    assert "compiling kernels" in said
    assert number(NUMBA_CACHE_DIR=str(tmp_path)) == (numbered, "")


@pytest.mark.slow
def test_nothing_but_the_temporary_folder_can_be_written(tmp_path: Path) -> None:
    """As with a read-only installation and home. (Files stand where folders should: that stops root, too.)"""
    nowhere = tmp_path / "file"
    nowhere.touch()
    package = Path(fedrel.__file__).parent
    copied = shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "extractors" / "pcnn" / "kernels" / "__pycache__").touch()
    numbered, _ = number()
    unwritable = {name: str(nowhere / "folder") for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    found, said = number(**unwritable, FEDREL_CACHE=str(nowhere / "folder"), PYTHONPATH=str(tmp_path))
    assert found == numbered
    assert "compiling kernels" in said and "cannot keep" in said


def test_kernels_need_no_folder_to_be_kept_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    numbered, _ = number()
    assert number(NUMBA_CACHE_DIR=str(nowhere / "cache"))[0] == numbered

    monkeypatch.setattr("numba.config.CACHE_DIR", str(nowhere / "cache"))
    monkeypatch.setenv("FEDREL_CACHE", str(nowhere / "corpora"))
    folder = compiling.kernel_folder.__wrapped__(nowhere / "kernels")
    folder.mkdir()
    tempfile.TemporaryFile(dir=folder).close()
