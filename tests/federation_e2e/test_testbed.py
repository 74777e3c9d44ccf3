"""No process is left behind, however a test ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.federation_e2e.testbed import Testbed, wait_for

TEST = """\
import os, signal, sys, time
from pathlib import Path
from fedrel.deployment.flower_programs import Program
from tests.federation_e2e.testbed import Testbed

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
sleep = "import time; time.sleep(600)"
start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}], start_new_session=True)"
with Testbed(Path(sys.argv[1])) as bed:
    mark = os.environ | {"FLWR_HOME": sys.argv[1]}  # as all of Flower's programs have it
    bed.run("alone", Program([sys.executable, "-c", sleep], mark))
    if sys.argv[2] != "SIGKILL":  # Flower's programs watch those that started them; this one does not
        bed.run("family", Program([sys.executable, "-c", start], mark))
    while len(bed.left()) < (1 if sys.argv[2] == "SIGKILL" else 3):
        time.sleep(0.05)
    print("all there", flush=True)
    if sys.argv[2] == "failure":
        raise AssertionError("on purpose")
    time.sleep(600)
"""


@pytest.mark.programs
@pytest.mark.parametrize("end", ["failure", "SIGINT", "SIGKILL"])
def test_no_process_is_left_behind(end: str, tmp_path: Path):
    command = [sys.executable, "-", str(tmp_path), end]
    pipe, root = subprocess.PIPE, Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=root, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(TEST)
        process.stdin.close()
        assert process.stdout.readline() == "all there\n", process.stderr.read()
        if end != "failure":
            process.send_signal(signal.Signals[end])
        process.wait(60)
    assert process.returncode != 0
    bed = Testbed(tmp_path)
    if end == "SIGKILL":  # nobody could wait for them
        wait_for(lambda: not bed.left(), "the process to follow")
    assert bed.left() == []
