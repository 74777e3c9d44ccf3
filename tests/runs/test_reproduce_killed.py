"""`fedrel reproduce` killed again and again comes to the same page as without."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedrel.runs.folder import read_json
from fedrel.runs.reproduction_record import Reproduction

ROUNDS = 3  # that a process trains, at least, before it is killed


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

    subprocess.run(command("alone"), capture_output=True, check=True)
    moments, kills = random.Random(0), 0
    while True:
        before = trained()
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and trained() < before + ROUNDS:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.2))
        process.kill()
        if process.wait() == 0:
            break
        kills += 1
    assert kills >= 3
    assert without_seconds(tmp_path / "killed" / "out") == without_seconds(tmp_path / "alone" / "out")
