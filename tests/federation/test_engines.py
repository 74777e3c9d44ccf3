"""One process, two workers, a killed and resumed run: the same weights to the bit, the same bytes counted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.experiment import run, to_toml
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


@pytest.mark.parametrize("method", ["lazy-mil", "att-ra", "one"])
def test_workers_give_the_same_weights_and_bytes(method, tmp_path):
    run(tiny(method=f'"{method}"'), tmp_path / "local")
    run(tiny(method=f'"{method}"', engine__kind="workers", engine__workers=2), tmp_path / "workers")
    same(tmp_path / "local", tmp_path / "workers")


def command(config: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "fedrel", "run", str(config), "--out", str(out), "--resume"]


def test_a_run_killed_at_random_moments_resumes_to_the_same_weights(tmp_path):
    config = tiny(method="lazy-mil", training__rounds=6, engine__kind="workers", engine__workers=2)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
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
    about = json.loads((out / "environment.json").read_text())
    (out / "environment.json").write_text(json.dumps(about | {"data_fingerprint": "another"}))
    with pytest.raises(UserError, match="the data are not those"):
        run(tiny(training__rounds=3), out, resume=True)


def test_a_damaged_checkpoint_is_refused(out):
    run(tiny(training__rounds=1), out)
    (out / "checkpoint" / "round-00001.safetensors").write_bytes(b"rubbish")
    with pytest.raises(UserError, match="is not a checkpoint"):
        run(tiny(training__rounds=2), out, resume=True)
