"""A federation of real processes on this machine's loopback, all of them ended whatever a test does."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomli_w
from safetensors.numpy import load_file

from fedrel.config.schema import Config
from fedrel.deployment.flower_programs import Program, flower_environment, wait_until_listening
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder, init_federation
from fedrel.deployment.policy import kinds_of_message
from fedrel.deployment.superlink import register_sites, superlink_program
from fedrel.deployment.supernode import supernode_program
from fedrel.methods.by_name import methods
from fedrel.runs.prepare import Preparation
from tests.federation_e2e.dividing import divide, prepared_for

NAMES = ("north", "south", "west")
PATIENCE = 900.0  # seconds for whatever is waited for; a busy machine takes its time
SUBMIT = """\
import sys
from pathlib import Path
from fedrel.errors import UserError
from fedrel.deployment.submit import submit
try:
    submit(Path(sys.argv[1]), home=Path(sys.argv[2]), connection="fedrel")
except UserError as error:
    sys.exit(f"error: {error}")
"""
ANSWER = """\
import sys
from pathlib import Path
from fedrel.deployment.supernode import run_supernode
from fedrel.deployment.folders import SiteFolder
sys.exit(run_supernode(SiteFolder(Path(sys.argv[1]))))
"""


@dataclass
class Testbed:
    """The folders, and every process that was started in them."""

    __test__ = False  # to pytest, its name looks like that of a test

    folder: Path
    secure: bool = True
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    link: int | None = None
    """Where sites find the superlink, if not where it listens: a proxy."""
    privacy: dict[str, Any] = field(default_factory=lambda: {"levels": 0})
    """As exact as a simulation, unless a test says otherwise."""
    data: dict[str, Any] = field(default_factory=dict)
    """What sites say of their own files, where these are read as `site prepare` does."""
    names: Sequence[str] = NAMES

    @property
    def coordinator(self) -> CoordinatorFolder:
        return CoordinatorFolder(self.folder / "coordinator")

    def site(self, name: str) -> SiteFolder:
        return SiteFolder(self.folder / "sites" / name)

    # Folders.

    def make(self, config: Config, ready: Preparation) -> None:
        """The folders that `federation init` makes, filled with the data of a simulation."""
        init_federation(self.folder, self.names, "127.0.0.1", free_port())
        divide(config, ready, self.coordinator.path, [self.site(name).path for name in self.names])
        for name in self.names:
            self.write_policy(name)

    def move_ports(self) -> None:
        """Ports of their own for folders that were copied."""
        table = self.coordinator.federation.model_dump() | {"port": free_port()}
        (self.coordinator.path / "federation.toml").write_text(tomli_w.dumps(table))
        for name in self.names:
            self.write_policy(name)

    def write_policy(self, name: str, **allow: Any) -> None:
        """A `site.toml` that allows everything but what is said otherwise."""
        everything = {
            "methods": [*methods()],
            "may_leave": [*kinds_of_message()],
            "rounds": 1000,
            "epochs": 100,
            "repeats": 100,
        }
        port = self.link or self.coordinator.federation.port
        policy = {
            "coordinator": f"127.0.0.1:{port}",
            "local_port": free_port(),
            "data": self.data,
            "allow": everything | allow,
            "privacy": self.privacy,
        }
        (self.site(name).path / "site.toml").write_text(tomli_w.dumps(policy))

    def request(self, config: Config, out: Path, *, resume: bool = False) -> Path:
        """What the coordinator's process is asked for."""
        asked = {
            "config": config.model_dump(mode="json"),
            "coordinator": str(self.coordinator.path),
            "out": str(out),
            "resume": resume,
        }
        file = self.folder / "request.json"
        file.write_text(json.dumps(asked))
        return file

    # Processes.

    def start(self, sites: Sequence[str] | None = None) -> None:
        """The superlink, and supernodes of these sites; by default of all."""
        self.start_superlink()
        for name in self.names if sites is None else sites:
            self.start_site(name)

    def start_superlink(self) -> None:
        program = superlink_program(self.coordinator, "127.0.0.1")
        process = self.run("superlink", program if self.secure else self._in_the_clear(program))
        wait_until_listening(process, self.coordinator.federation.port, "the superlink")
        if self.secure:
            register_sites(self.coordinator)

    def start_site(self, name: str, **environment: str) -> None:
        """As `fedrel site start` does, but for its checks: the folders are not made by `site prepare`."""
        command = [sys.executable, "-c", ANSWER, str(self.site(name).path)]
        program = Program(command, flower_environment(self.site(name).flower) | environment)
        self.run(name, program if self.secure else self._in_the_clear(supernode_program(self.site(name))))

    def submit(self, config: Config, out: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
        """Prepare the sites for a run and hand it to the superlink, from a process of its own."""
        for name in self.names:
            prepared_for(config, self.site(name).path)
        home, request = self.coordinator.flower, self.request(config, out, resume=resume)
        command = [sys.executable, "-c", SUBMIT, str(request), str(home)]
        return self.run("submit", Program(command, flower_environment(home)))

    def finish(self, config: Config, out: Path, *, resume: bool = False) -> None:
        """The same, and wait for its good end."""
        self.ends_well(self.submit(config, out, resume=resume))

    def fedrel(self, *arguments: str) -> None:
        """One of fedrel's own commands, to its good end."""
        command = [sys.executable, "-m", "fedrel", *arguments]
        self.ends_well(self.run("submit", Program(command, os.environ)))

    def ends_well(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(PATIENCE) == 0, self.log("submit").read_text()

    def run(self, name: str, program: Program) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                program.command,
                env=dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it only sets a signal
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        """End a process and all that it started, without a warning."""
        self.signal(name, signal.SIGKILL)
        self.processes.pop(name).wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and all that it started."""
        for pid in family(self.processes[name].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything, whatever happened, and make sure of it: a process that is left is an error."""
        for name in list(self.processes):
            self.kill(name)
        wait_for(lambda: not self.left(), "the last process to end")

    def left(self) -> list[int]:
        """Processes that were started for these folders, by whomever: the environment names them in all of them."""
        found, mark = [], str(self.folder).encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and entry.name != str(os.getpid()):
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def _in_the_clear(self, program: Program) -> Program:
        """Without TLS and without keys: for tests that must see what crosses."""
        flags = [
            *("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile"),
            *("--root-certificates", "--auth-supernode-private-key"),
        ]
        command = list(program.command)
        for flag in flags:
            if flag in command:
                del command[command.index(flag) : command.index(flag) + 2]
        command = [*(part for part in command if part != "--enable-supernode-auth"), "--insecure"]
        connection = {"address": f"127.0.0.1:{self.coordinator.federation.port}", "insecure": True}
        known = {"superlink": {"default": "fedrel", "fedrel": connection}}
        (self.coordinator.flower / "config.toml").write_text(tomli_w.dumps(known))
        return Program(command, program.environment)


def family(pid: int) -> list[int]:
    """A process, its group, and all their descendants: Flower's programs start one another."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1]), int(fields[2])
    found = {pid} | {child for child, (_, group) in parents.items() if group == pid}
    while more := {child for child, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def die_with_parent() -> None:
    """Of a process about to start: end it when the test's process ends, even if that is killed.

    Flower's programs watch those that started them, so the others follow.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE} seconds for {what}"
        time.sleep(0.1)


def rounds(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what may differ between engines: the time, and what only a simulation may see."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        for key in ("seconds", "selection_precision", "watched"):
            line.pop(key)
    return lines


def same(one: Path, other: Path) -> None:
    """The same rounds, the same bytes counted, the same weights to the bit."""
    assert rounds(one) == rounds(other)
    first, second = (load_file(folder / "model" / "weights.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
