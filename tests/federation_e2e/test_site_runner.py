"""A site's runner: who may ask it, that there is only one, that killing it loses nothing, what stays in memory."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from flwr.app import RecordDict

from fedrel.deployment import flower_programs, passing, site_runner, task_starter
from fedrel.deployment.audit import check
from fedrel.deployment.client_guard import CLIENT, write_programs
from fedrel.deployment.flower_programs import Pauses, PausesOfANode
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.passing import (
    SOCKET,
    OtherUserError,
    accept,
    connected,
    from_bytes,
    listening,
    pass_on,
    receive,
    send,
    to_bytes,
)
from fedrel.deployment.site_runner import ResidentHost, ResidentSite
from fedrel.deployment.task_starter import Supervised
from fedrel.errors import UserError
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import Request
from fedrel.tensors.machine import in_parts
from tests.federation_e2e.conftest import Called, Local, experiment
from tests.federation_e2e.dividing import prepared_for
from tests.federation_e2e.grid import Behaviour
from tests.federation_e2e.testbed import NAMES, same, wait_for

RUN = "0" * 32 + "-" + "0" * 8


@contextmanager
def answering(folder: Path, replies: list[Any]) -> Iterator[list[bytes]]:
    """Somebody who listens and gives these replies: bytes, or None to hang up after the request has come."""
    asked: list[bytes] = []
    with listening(folder) as server:

        def serve() -> None:
            for reply in replies:
                with accept(server) as connection:
                    asked.append(receive(connection))
                    if reply is not None:
                        send(connection, reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(10)


# --- The socket ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 200])
def test_only_the_owner_may_open_the_socket(tmp_path: Path, length: int) -> None:
    site = tmp_path / ("s" * length)  # the longer one is longer than a socket's path may be
    site.mkdir()
    with answering(site, [b"answer"]):
        folder = site / "runner"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
        with connected(site) as connection:
            send(connection, b"x" * 1_000_000)
            assert receive(connection) == b"answer"
    assert not (site / "runner" / SOCKET).exists()


def test_another_users_process_is_not_answered_nor_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(tmp_path) as server:
        with connected(tmp_path):
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
            with pytest.raises(OtherUserError, match="expected 12345"):
                accept(server)
        with pytest.raises(OtherUserError), connected(tmp_path):
            pass


def test_there_is_one_runner_a_site(tmp_path: Path) -> None:
    with listening(tmp_path), pytest.raises(UserError, match=r"running already(?s:.*)stop the other"):  # noqa: SIM117
        with listening(tmp_path):
            pass
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path\n"
            "from fedrel.deployment.passing import listening\n"
            "with listening(Path(sys.argv[1])): import os; os._exit(0)",
            str(tmp_path),
        ],
        check=False,
    )
    assert done.returncode == 0 and (tmp_path / "runner" / SOCKET).exists()  # it was killed, so to say
    with listening(tmp_path):
        pass


def test_bytes_that_end_too_early(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"\0" * 7 + b"\5" + b"ab")
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="is gone"):
            receive(there)


# --- Passing -------------------------------------------------------------------------------------------------


def request(site: Path) -> RecordDict:
    """What a coordinator asks the first site for in the beginning."""
    config, artefacts = (json.loads((site / name).read_text()) for name in ("config.json", "artefacts.json"))
    nothing = codec.encode_arrays({})
    return codec.encode_request(Request(RUN, config, artefacts, 0, 0, "census"), nothing, nothing)


def test_a_request_is_sent_again_when_the_runner_is_killed(tmp_path: Path) -> None:
    content = codec.encode_arrays({"x": np.arange(3)})
    asked = RecordDict({"question": content})
    with answering(tmp_path, [None, None, to_bytes(asked)]) as came:
        assert pass_on(tmp_path, asked) == asked
    assert came == [to_bytes(asked)] * 3


def test_a_request_that_ends_every_runner_is_refused_and_recorded(called: Called) -> None:
    site = called.bed.site("north")
    prepared_for(experiment(), site.path)
    with answering(site.path, [None] * passing.ATTEMPTS) as came:
        answer = codec.decode_answer(pass_on(site.path, request(site.path)))
    assert len(came) == passing.ATTEMPTS and "failed while it answered" in answer.failure
    (line,) = site.audit.read_text().splitlines()
    assert "the site's runner does not answer" in json.loads(line)["entry"]["note"]


def test_a_runner_that_never_starts_is_waited_for_only_so_long(
    called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = called.bed.site("north")
    prepared_for(experiment(), site.path)
    monkeypatch.setattr(passing, "PATIENCE", 0.2)
    assert "failed while it answered" in codec.decode_answer(pass_on(site.path, request(site.path))).failure
    assert len(site.audit.read_text().splitlines()) == 1


def test_passing_imports_neither_torch_nor_a_rule(tmp_path: Path) -> None:
    code = "import sys, fedrel.deployment.passing\nprint(*(name for name in sys.argv[1:] if name in sys.modules))"
    heavy = ("torch", "safetensors", "transformers", "fedrel.deployment.policy", "fedrel.methods.by_name")
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# --- The runner ----------------------------------------------------------------------------------------------

QUICK = {"extractor__filters": 4, "training__epochs": 1}


def residents(called: Called) -> list[ResidentSite]:
    """The sites of a federation answer through runners that stay, in this process."""
    sites = [ResidentSite(called.bed.site(name).path) for name in NAMES]

    def through(site: ResidentSite) -> Behaviour:
        return lambda content, _: from_bytes(site.answer(to_bytes(content)))

    called.grid.behaviour.update({number: through(site) for number, site in enumerate(sites)})
    return sites


def test_a_runner_that_stays_gives_the_same_bits(
    called: Called, local: Local, tmp_path: Path, monkeypatch
) -> None:
    made: list[str] = []
    new = ResidentHost.new_runner
    monkeypatch.setattr(ResidentHost, "new_runner", lambda self, run: made.append(run) or new(self, run))
    residents(called)
    for method, name in (
        ("scaffold", "first"),
        ("lazy-mil", "second"),
    ):  # the second is prepared for while they stay
        config = experiment(method, **QUICK)
        same(local(config), called.run(config, tmp_path / name))
    assert (
        len(made) == 2 * len(NAMES) and len(set(made)) == 2
    )  # one a run and site, though there were many requests
    longer = experiment("scaffold", training__rounds=3, **QUICK)
    same(local(longer), called.run(longer, tmp_path / "first", resume=True))


def test_rules_that_changed_hold_for_the_next_request(called: Called) -> None:
    site = called.bed.site("north")
    prepared_for(experiment(), site.path)
    resident = residents(called)[0]

    def ask() -> str:
        return codec.decode_answer(from_bytes(resident.answer(to_bytes(request(site.path))))).failure

    assert ask() == ""
    called.bed.write_policy("north", may_leave=["Update"])
    assert "does not allow the message" in ask()
    (site.path / "site.toml").write_text("nonsense")
    assert "failed while it answered" in ask()
    assert len(site.audit.read_text().splitlines()) == 2


@pytest.mark.parametrize("block", [b"", b"no records at all"])
def test_bytes_that_are_no_request_are_refused_and_recorded(block: bytes, called: Called) -> None:
    site = called.bed.site("north")
    prepared_for(experiment(), site.path)
    answer = codec.decode_answer(from_bytes(ResidentSite(site.path).answer(block)))
    assert "does not fit its declaration" in answer.failure
    assert len(site.audit.read_text().splitlines()) == 1


def test_a_site_uses_all_cores_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def respond(_: object, content: RecordDict) -> RecordDict:
        threads.extend(in_parts([threading.get_ident] * 2))
        return content

    monkeypatch.setattr(site_runner, "available", lambda: 2)
    monkeypatch.setattr(site_runner, "respond", respond)
    ResidentSite(tmp_path).answer(to_bytes(RecordDict()))
    assert len(set(threads)) == 2


def runner_of(site: Path) -> Supervised:
    return Supervised([sys.executable, "-m", "fedrel.deployment.site_runner", str(site)], os.environ)


@pytest.mark.programs
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_runner_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "fedrel.deployment.site_runner", str(tmp_path)]
    with subprocess.Popen(command) as process:
        wait_for((tmp_path / "runner" / SOCKET).exists, "the runner")
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 1 and "running already" in second.stderr
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not (tmp_path / "runner").exists()


STUBBORN = """\
import sys, time
from pathlib import Path
from fedrel.deployment import site_runner

def answer(self, request):
    Path(sys.argv[1], "asked").touch()
    while True:
        try:
            time.sleep(600)
        except BaseException:  # as a compiler's handlers may do
            pass

site_runner.ResidentSite.answer = answer
site_runner.main()
"""


@pytest.mark.programs
def test_a_signal_ends_the_runner_whatever_it_computes(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN, str(tmp_path)]) as process:
        wait_for((tmp_path / "runner" / SOCKET).exists, "the runner")
        with connected(tmp_path) as connection:
            send(connection, b"anything")
            wait_for((tmp_path / "asked").exists, "the request")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert not (tmp_path / "runner").exists()


def test_a_program_that_ends_is_started_again_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    now, started = [100.0], []
    monkeypatch.setattr(task_starter.time, "monotonic", lambda: now[0])
    real = subprocess.Popen

    def start(*given: Any, **how: Any) -> Any:
        started.append(now[0])
        return real(*given, **how)

    monkeypatch.setattr(task_starter.subprocess, "Popen", start)
    program = Supervised(["true"], os.environ)
    for _ in range(150):
        program.look()
        if program._process is not None:
            program._process.wait()
        now[0] += 0.1
    gaps = [later - earlier for earlier, later in pairwise(started)]
    assert gaps == pytest.approx([0.3, 0.7, 1.5, 3.1, 6.3], abs=0.21)
    now[0] += task_starter.LONGEST_WAIT + 0.1
    program.look()
    assert started[-1] == now[0]
    program.end()


@pytest.mark.slow
def test_a_runner_killed_at_random_moments_loses_nothing(
    called: Called, local: Local, tmp_path: Path
) -> None:
    """One site's runner is a process, and `kill -9` meets it between requests and in the middle of them."""
    site = called.bed.site("west").path
    runner, over, some = runner_of(site), threading.Event(), random.Random(5)
    killed: list[int] = []

    def supervise() -> None:
        alive = 0.0
        while not over.wait(0.05):
            runner.look()
            alive = alive + 0.05 if (site / "runner" / SOCKET).exists() else 0.0
            if len(killed) < 4 and alive > some.uniform(0, 12) and runner._process is not None:
                killed.append(runner._process.pid)
                runner._process.kill()
                runner._process.wait()
                alive = 0.0

    called.grid.behaviour[2] = lambda content, _: pass_on(site, content)
    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        config = experiment("scaffold", training__rounds=4, **QUICK)
        same(local(config), called.run(config, tmp_path / "run"))
    finally:
        over.set()
        thread.join()
        runner.end()
    assert killed
    assert check(SiteFolder(site).audit).broken is None


# --- Clients that are forked ---------------------------------------------------------------------------------


def test_a_client_is_forked_only_where_its_program_could_be_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    write_programs(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: started.append((command, how)))
    monkeypatch.setenv("PATH", str(tmp_path))
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        there.setblocking(False)
        processes = task_starter._Processes(CLIENT, here, Pauses())
        processes.Popen([CLIENT, "--token", "t"])
        assert json.loads(there.recv(1000)) == [CLIENT, "--token", "t"] and not started
        processes.Popen(["flwr-model"], stdout=processes.DEVNULL)
        assert started.pop() == (["flwr-model"], {"stdout": subprocess.DEVNULL})
        (tmp_path / CLIENT).chmod(0)
        processes.Popen([CLIENT, "--token", "t"])
        assert started.pop() == ([CLIENT, "--token", "t"], {})
        with pytest.raises(BlockingIOError):
            there.recv(1000)
        (tmp_path / CLIENT).chmod(0o700)
        there.close()  # the process that forks is gone
        processes.Popen([CLIENT])
        assert started.pop() == ([CLIENT], {})


FORKS = """\
import os, socket, sys, time
from pathlib import Path
from fedrel.deployment import task_starter

folder = Path(sys.argv[1])

def answer():
    (folder / sys.argv[1]).write_text(str(os.getppid()))
    raise SystemExit("this one fails") if sys.argv[1] == "b" else SystemExit(0)

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
pid = os.fork()
if pid == 0:
    ours.close()
    task_starter._exit_after(task_starter._serve, theirs, answer, folder, dict(os.environ))
theirs.close()
for name in ("a", "b", "c"):
    ours.sendall(f'["program", "{name}"]'.encode())
while not all((folder / name).exists() and (folder / name).read_text() for name in ("a", "b", "c")):
    time.sleep(0.05)
while not (folder / "runner" / "socket").exists():
    time.sleep(0.05)
ours.close()
print(pid, os.waitpid(pid, 0)[1])
"""


@pytest.mark.programs
def test_clients_are_forked_one_a_command_beside_the_runner_and_end_with_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    starter, code = done.stdout.split()
    assert code == "0" and "this one fails" in done.stderr
    assert [(tmp_path / name).read_text() for name in "abc"] == [starter] * 3
    assert not (tmp_path / "runner").exists()  # the runner was ended, too


def test_flower_has_what_is_replaced() -> None:
    assert import_module(task_starter.EXECUTOR).subprocess is subprocess
    for name in (task_starter.LOOP, "flwr.supernode.start_client_internal"):
        assert import_module(name).time is time
    pulling = (
        task_starter.CLIENT_MODULES[0],
        "flwr.supernode.start_client_internal",
        "flwr.superlink.grid.http_grid",
    )
    for name in pulling:
        (found,) = (
            function for key, function in vars(import_module(name)).items() if key in flower_programs.PULLS
        )
        assert "initial_backoff" in signature(found).parameters


def test_pauses_grow_with_the_time_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []
    monkeypatch.setattr(flower_programs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(flower_programs.time, "sleep", slept.append)
    node = PausesOfANode()
    for idle in (0.0, 1.0, 8.0, 100.0):
        now[0] = idle
        node.sleep(3)
    node.sleep(0.5)  # it waits for an answer: there is work
    node.sleep(3)
    assert slept == [0.05, 0.25, 2.0, 3.0, 0.05, 0.05]
    assert node.perf_counter is time.perf_counter
