"""Flower's programs as a federation's folders say: which flags, which environment, and how they are ended."""

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
from importlib.util import find_spec
from pathlib import Path

from fedrel.deployment.client_guard import write_programs
from fedrel.deployment.folders import CONNECTION, CoordinatorFolder, SiteFolder
from fedrel.deployment.policy import read_policy
from fedrel.errors import UserError
from fedrel.federation.flower.simulation import QUIET
from fedrel.files import write_text

PATIENCE = 180.0  # seconds, for a program to listen: on a busy machine it takes its time
GRACE = 10.0  # seconds, for a program to end when it is told to
PR_SET_PDEATHSIG = 1  # prctl's number for it


@dataclass(frozen=True)
class Program:
    """A command and the environment it runs in."""

    command: Sequence[str]
    environment: Mapping[str, str]


def superlink(folder: CoordinatorFolder, listen: str = "0.0.0.0") -> Program:
    """What the sites connect to: TLS, registered keys only, and nothing installed while it runs."""
    needs_flower()
    path = folder.path.absolute()
    write_connection(folder)
    command = [
        *(sys.executable, "-m", "fedrel.deployment.superlink"),
        *("--host", listen, "--port", str(folder.federation.port)),
        *("--ssl-ca-certfile", str(path / "ca.crt")),
        *("--ssl-certfile", str(path / "server.crt"), "--ssl-keyfile", str(path / "server.key")),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--database", str(path / "flower" / "superlink.db")),
    ]
    return Program(command, environment(path / "flower"))


def supernode(folder: SiteFolder) -> Program:
    """What answers at a site: it knows the coordinator by its authority, and is known by its key."""
    needs_flower()
    path, policy = folder.path.absolute(), read_policy(folder.path)
    write_programs(path / "flower" / "bin")
    command = [
        program("flower-supernode"),
        *("--superlink", policy.coordinator, "--root-certificates", str(path / "ca.crt")),
        *("--auth-supernode-private-key", str(path / "site.key")),
        *("--host", "127.0.0.1", "--port", str(policy.local_port)),
        *("--ssl-ca-certfile", str(path / "ca.crt")),
        *("--ssl-certfile", str(path / "runtime.crt"), "--ssl-keyfile", str(path / "runtime.key")),
        *("--node-config", f'site="{path}"'),
    ]
    return Program(command, environment(path / "flower") | {"PATH": str(path / "flower" / "bin")})


def write_connection(folder: CoordinatorFolder) -> None:
    """Where Flower's command finds the superlink: on this machine, whatever the sites call it."""
    import tomli_w

    authority = str(folder.path.absolute() / "ca.crt")
    link = {"address": f"127.0.0.1:{folder.federation.port}", "root-certificates": authority}
    known = {"superlink": {"default": CONNECTION, CONNECTION: link}}
    write_text(folder.flower / "config.toml", tomli_w.dumps(known))


def needs_flower() -> None:
    """Fail where Flower is not installed."""
    if find_spec("flwr") is None:
        raise UserError("Flower is not installed", hint="run `pip install fedrel[flower]`")


def environment(home: Path) -> dict[str, str]:
    """The environment for Flower's programs; they start one another by name, from this interpreter's folder."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}


def program(name: str) -> str:
    """One of Flower's programs, from this interpreter's folder."""
    return str(Path(sys.executable).parent / name)


@contextmanager
def running(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the foreground, ended with all that it started, whatever happens here."""
    process = subprocess.Popen(
        program.command,
        env=dict(program.environment),
        start_new_session=True,
        preexec_fn=follow_parent,  # noqa: PLW1509 - it only sets a signal
    )
    try:
        with interruptible():
            yield process
    finally:
        end(process)


@contextmanager
def interruptible() -> Iterator[None]:
    """Who is told to end, or whose terminal is gone, ends as by Ctrl-C."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow_parent() -> None:
    """Of a process about to start: be told to end when whoever started it is gone, even by `kill -9`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: subprocess.Popen[bytes]) -> None:
    """Tell a program to end, and then make all end that it started: some of it lives in sessions of its own."""
    started = _descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid, born in started.items():
        if _born(pid) == born:  # the number may be another process's by now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Return when a program answers on this machine; an error if it ended first or takes too long."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        if listens(port):
            return
        time.sleep(0.1)
    state = f"ended with exit code {process.returncode}" if process.poll() is not None else "does not answer"
    raise UserError(f"Flower's superlink {state}", hint=f"its messages are above; is port {port} free?")


def listens(port: int) -> bool:
    """Whether a program on this machine answers there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_free(port: int, hint: str) -> None:
    """Return when nobody listens there: a program that was killed with what started it takes a moment to end."""
    until = time.monotonic() + GRACE
    while listens(port):
        if time.monotonic() > until:
            raise UserError(f"another program listens on port {port} of this machine", hint=hint)
        time.sleep(0.1)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _descendants(pid: int) -> dict[int, str]:
    """The processes that this one started, and those that they did, each with when it was born."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):  # elsewhere than on Linux there is none: the group must do
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int(_facts(int(entry.name))[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: _born(child) for child in found - {pid}}


def _born(pid: int) -> str:
    """When a process began, as the kernel counts; nothing if it is gone."""
    try:
        return _facts(pid)[19]
    except (OSError, IndexError):
        return ""


def _facts(pid: int) -> list[str]:
    """What the kernel says of a process after its name: its state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
