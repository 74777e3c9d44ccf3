"""The quick Python does what Python does: output, arguments, folder, variables, exit code, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REAL
from tests.quick_python.client import at_start

QUICK = os.environ["FEDREL_QUICK_PYTHON"]
COLLECTED = at_start(os.environ)  # before any test, or a library that it imports, has changed a variable
LOOK = "import os, sys; print(__name__, sys.argv, os.getcwd(), os.environ['SAID'], sys.stdin.read(), sys.path[0])"


def outcome(python: str, *arguments: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, *arguments],
        input="some input",
        cwd=folder,
        env=os.environ | {"SAID": "yes", "PYTHONPATH": os.pathsep.join(["/nowhere", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", LOOK, "a", "b c"),
        ("-m", "looking", "a"),
        ("looking.py", "a"),
        ("-P", "-m", "looking", "a"),
        ("-P", "looking.py", "a"),
        ("-X", "utf8", "-c", LOOK),  # which a fork cannot do
        ("-c", "class A: pass\nprint(A, A().__module__); 1 / 0"),
        ("-c", "import sys; print(sys.stdout.write_through, sys.stdout.line_buffering, sys.stderr.line_buffering)"),
        ("-c", "import sys; sys.stdout.write('out'); sys.stderr.write('err'); sys.exit(3)"),
        ("-c", "import sys; sys.exit('what is wrong')"),
        ("-c", "import atexit, threading; atexit.register(print, 'end'); threading.Thread(target=print).start()"),
        ("-c", "import os; os.kill(os.getpid(), 9)"),
        ("-c", "import os; os._exit(7)"),
        ("-c", "raise KeyboardInterrupt"),
        ("-m", "fedrel", "--version"),
        ("-m", "fedrel", "run", "nothing.toml"),
        ("-m", "no_such_module",),
    ],
    ids=repr,
)  # fmt: skip
def test_a_command_does_what_it_does_in_a_new_process(arguments, tmp_path):
    (tmp_path / "looking.py").write_text(LOOK)
    found = outcome(sys.executable, *arguments, folder=tmp_path)
    expected = outcome(REAL, *arguments, folder=tmp_path)
    assert found == tuple(
        part.replace(REAL, sys.executable) if isinstance(part, str) else part for part in expected
    )


def test_it_is_a_fork_that_has_torch_already(tmp_path, monkeypatch):
    for name in at_start(os.environ).keys() - COLLECTED.keys():
        monkeypatch.delenv(name)
    for name, value in COLLECTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONBREAKPOINT", "changes nothing at the start")
    code = "import sys; print('torch' in sys.modules, sys.executable)"
    assert outcome(f"{QUICK}/python", "-c", code, folder=tmp_path)[1] == f"True {QUICK}/python\n"
    assert outcome(REAL, "-c", code, folder=tmp_path)[1] == f"False {REAL}\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 5), (signal.SIGTERM, -signal.SIGTERM)])
def test_signals_are_passed_on(number, code):
    waiting = (
        "import time\ntry:\n  print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: exit(5)"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait() == code


def test_a_command_ends_when_its_process_is_killed():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        process.kill()
    end = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}").exists()


def test_another_fedrel_on_the_path_is_the_one_that_is_imported(tmp_path):
    (tmp_path / "fedrel").mkdir()
    (tmp_path / "fedrel" / "__init__.py").write_text("name = 'another'")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    code = "import fedrel, sys; print(fedrel.name, sorted(m for m in sys.modules if m.startswith('fedrel')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "another ['fedrel']\n"
