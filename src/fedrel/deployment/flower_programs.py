"""Flower's own programs: starting them, ending them with everything that they started, and shorter pauses in them.

Flower's supernode looks for a request every three seconds, and the program that starts its tasks every second. That
is more than most phases take. Here a program that has just had work looks again soon, and less and less often the
longer there is none: it waits a quarter of the time since, at most as long as Flower would.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedrel.errors import UserError
from fedrel.federation.flower import QUIET

START_TIMEOUT = 180.0  # seconds for a program to listen: it takes long on a busy machine
GRACE = 10.0  # seconds for a program to end after it is told to
PR_SET_PDEATHSIG = 1  # prctl's number for it

SHORTEST = 0.05  # seconds
SHARE = 0.25  # of the time since there was work
PULLS = {
    "pull_objects",
    "pull_and_inflate_object_from_tree",
}  # Flower's functions that get the parts of a message


@dataclass(frozen=True)
class Program:
    """A command and the environment that it runs in."""

    command: Sequence[str]
    environment: Mapping[str, str]


def needs_flower() -> None:
    """Fail if Flower is not installed."""
    if find_spec("flwr") is None:
        raise UserError("Flower is not installed", hint="run `pip install fedrel[flower]`")


def flower_program(name: str) -> str:
    """The path of one of Flower's programs, in this interpreter's folder."""
    return str(Path(sys.executable).parent / name)


def flower_environment(home: Path) -> dict[str, str]:
    """The environment for Flower's programs. They start one another by name, from this interpreter's folder."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}


@contextmanager
def running(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the foreground; at the end of the block it is stopped with everything that it started."""
    process = subprocess.Popen(
        program.command,
        env=dict(program.environment),
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - it only sets a signal
    )
    try:
        with interruptible():
            yield process
    finally:
        end(process)


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP of a closed terminal, like Ctrl-C."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """In a process about to start: ask the kernel for a SIGTERM when its parent ends, even by `kill -9`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: subprocess.Popen[bytes]) -> None:
    """Tell a program to end, then kill everything that it started: some of that has a session of its own."""
    started = _descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid, start_time in started.items():
        if _start_time(pid) == start_time:  # else the number is another process's by now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def listens(port: int) -> bool:
    """Whether a program on this machine listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_listening(process: subprocess.Popen[bytes], port: int, name: str) -> None:
    """Return when a program listens on this machine; `UserError` if it ends first or takes too long."""
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        if listens(port):
            return
        time.sleep(0.1)
    state = f"ended with exit code {process.returncode}" if process.poll() is not None else "does not answer"
    raise UserError(f"{name} {state}", hint=f"its messages are above; is port {port} free?")


def wait_until_free(port: int, hint: str) -> None:
    """Return when nothing listens on the port: a program whose parent was killed takes a moment to end."""
    until = time.monotonic() + GRACE
    while listens(port):
        if time.monotonic() > until:
            raise UserError(f"another program listens on port {port} of this machine", hint=hint)
        time.sleep(0.1)


def pull_soon_again(module: str) -> None:
    """Let a module of Flower's wait less before it asks again for a part of a message that has not come yet.

    Flower waits a second, then longer and longer. A process that looks often is likely to see a message whose parts
    are still being sent.
    """
    names = vars(import_module(module))
    for name in PULLS & names.keys():
        names[name] = partial(names[name], initial_backoff=SHORTEST)


class Pauses:
    """Stands for the module `time` in a module of Flower's."""

    def __init__(self) -> None:
        self._worked = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def work(self) -> None:
        """Note that there is work."""
        self._worked = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, at most so long."""
        idle = time.monotonic() - self._worked
        time.sleep(min(seconds, max(SHORTEST, SHARE * idle)))


class PausesOfANode(Pauses):
    """Of the supernode's loop, which waits half a second at a time for the answer to a request that it has."""

    ANSWER = 0.5

    def sleep(self, seconds: float) -> None:
        """Wait, at most so long."""
        if seconds <= self.ANSWER:
            self.work()
        super().sleep(seconds)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _descendants(pid: int) -> dict[int, str]:
    """All processes that this one started, directly or not, each with its start time."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):  # only Linux has it; elsewhere the process group must do
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int(_facts(int(entry.name))[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: _start_time(child) for child in found - {pid}}


def _start_time(pid: int) -> str:
    """When a process began, as the kernel counts; empty if it is gone."""
    try:
        return _facts(pid)[19]
    except (OSError, IndexError):
        return ""


def _facts(pid: int) -> list[str]:
    """What the kernel says of a process after its name: its state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
