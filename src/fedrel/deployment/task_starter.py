"""What starts a site's processes: its runner, and for each message a process that has Flower imported already.

Flower's `flower-superexec` would start the program `flwr-clientapp` for each message, which takes seconds to
import Flower. So before it begins, a process is forked that has imported all of it. For each message that one is
forked again, and runs the same guarded client as the program (`client_guard.main`); if the program could not be
executed, nothing is forked. The first fork also keeps the site's runner running, and ends it in the end.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedrel.deployment.flower_programs import Pauses, end, end_with_parent, pull_soon_again

SITE = "FEDREL_SITE"  # the environment's name for the site's folder
EXECUTOR = "flwr.supercore.superexec.executor.subprocess_executor"
LOOP = "flwr.supercore.superexec.run_superexec"
CLIENT_MODULES = (
    "flwr.supernode.runtime.run_clientapp",
    "flwr.supernode.cli.flwr_clientapp",
    "fedrel.deployment.passing",
)
LOOK = 0.2  # seconds between two looks at the runner
SETTLED = 30.0  # seconds after which a runner that ends is started again at once
LONGEST_WAIT = 30.0  # seconds before one is started again that ends as soon as it has begun


def start_tasks(client: str, answer: Callable[[], None]) -> None:
    """Flower's program that starts the others; the one called `client` is forked, and does what `answer` does."""
    site, environment = Path(os.environ[SITE]), dict(os.environ)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process that forks should have no threads
    superexec = import_module("flwr.supercore.cli")
    _fork_clients(client, answer, site, environment)
    superexec.flower_superexec()


def _fork_clients(
    client: str, answer: Callable[[], None], site: Path, environment: Mapping[str, str]
) -> None:
    """Fork the process that forks clients, and let Flower ask it for them."""
    executor, loop = import_module(EXECUTOR), import_module(LOOP)
    for name in CLIENT_MODULES:
        import_module(name)
    pull_soon_again(CLIENT_MODULES[0])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _exit_after(_serve, theirs, answer, site, environment)
    theirs.close()
    pauses = Pauses()
    vars(executor)["subprocess"] = _Processes(client, ours, pauses)
    vars(loop)["time"] = pauses


class _Processes:
    """Stands for the module `subprocess` where Flower starts a task."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, client: str, starter: socket.socket, pauses: Pauses) -> None:
        self._client, self._starter, self._pauses = client, starter, pauses

    def Popen(self, command: Sequence[str], **how: Any) -> None:  # noqa: N802 - subprocess's name
        """Start a task, which nobody waits for."""
        self._pauses.work()
        if command[0] == self._client and shutil.which(self._client) and not how:
            with suppress(OSError):  # the other end is gone: start the program
                self._starter.sendall(json.dumps(list(command)).encode())
                return
        subprocess.Popen(command, **how)


class Supervised:
    """A program that is started again whenever it ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._again = 0.0
        self._wait = 0.0

    def look(self) -> None:
        """Start it if it does not run; one that ends again and again is started less and less often."""
        now = time.monotonic()
        if self._process is not None:
            if self._process.poll() is None:
                return
            settled = now - self._started >= SETTLED
            self._wait = 0.0 if settled else min(LONGEST_WAIT, 2 * self._wait + LOOK)
            self._process, self._again = None, now + self._wait
        if now < self._again:
            return
        self._started = now
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it only sets a signal
        )

    def end(self) -> None:
        """End it for good."""
        if self._process is not None:
            end(self._process)


def _serve(
    starts: socket.socket, answer: Callable[[], None], site: Path, environment: Mapping[str, str]
) -> None:
    """Fork a client for each command that comes, and keep the runner running, until the other end is gone."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other end gets it, too
    program = [sys.executable, "-P", "-m", "fedrel.deployment.site_runner", str(site)]
    runner = Supervised(program, environment)
    clients: set[int] = set()
    try:
        while True:
            runner.look()
            clients -= {pid for pid in clients if os.waitpid(pid, os.WNOHANG)[0]}
            if not select.select([starts], [], [], LOOK)[0]:
                continue
            command = starts.recv(1 << 16)
            if not command:
                return
            pid = os.fork()
            if pid == 0:
                starts.close()
                _exit_after(_run_client, answer, json.loads(command))
            clients.add(pid)
    finally:
        runner.end()


def _run_client(answer: Callable[[], None], command: list[str]) -> None:
    """Answer one message, as the program of this name does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    sys.argv = command
    answer()


def _exit_after(work: Any, *given: Any) -> NoReturn:
    """In a process that was forked: do the work and end, without what the parent would do at its end."""
    code: Any = 1
    try:
        work(*given)
        code = 0
    except SystemExit as asked:
        code = asked.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
