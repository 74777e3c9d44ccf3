"""Flower's programs: their flags, how they end, and the guards around them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fedrel.deployment import flower_programs, supernode
from fedrel.deployment.client_guard import CLIENT, REFUSED, STARTER, write_programs
from fedrel.deployment.flower_programs import Program, running
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder, init_federation
from fedrel.deployment.superlink import OnlySitesFromOutside, superlink_program
from fedrel.errors import UserError

IDENTITY = '{"number": 0, "name": "north", "sites": ["north"]}'
POLICY = 'coordinator = "localhost:1"\n'


@pytest.mark.usefixtures("real_python")
def test_numpy_starts_no_threads_before_they_are_forbidden() -> None:
    """`start_tasks` sets OPENBLAS_NUM_THREADS, which numpy reads when it is imported."""
    code = "import sys, fedrel.deployment.task_starter; print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


def call(path: str, client: str | None, kind: str = "http") -> tuple[bool, int | None]:
    """Whether the superlink would hear of a request, and else the status of the answer."""
    heard: list[bool] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append(True)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "client": (client, 5) if client else None}
    asyncio.run(OnlySitesFromOutside(app)(scope, None, send))
    return bool(heard), sent[0]["status"] if sent else None


@pytest.mark.parametrize("client", ["203.0.113.9", "10.0.0.4", "::ffff:203.0.113.9", "testclient", None])
def test_other_machines_reach_only_what_sites_need(client):
    assert call("/v1/fleet/pull-messages", client) == (True, None)
    for path in (
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/pull-task-input",
        "/docs",
    ):
        assert call(path, client) == (False, 403)
    assert call("/v1/control/start-run", client, "websocket") == (False, None)


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "127.0.1.1"])
def test_the_coordinators_machine_reaches_everything(client):
    assert call("/v1/control/start-run", client) == (True, None)


def test_the_server_may_start_and_end():
    assert call("", None, "lifespan") == (True, None)


def test_a_sites_programs_replace_flowers(tmp_path):
    write_programs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {CLIENT, STARTER, *REFUSED}
    for name in REFUSED:
        done = subprocess.run([tmp_path / name], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "no such task" in done.stderr


def test_an_interpreter_under_a_path_with_spaces_runs_them(tmp_path, monkeypatch):
    (tmp_path / "my env").symlink_to(Path(sys.prefix))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env" / "bin" / Path(sys.executable).name))
    write_programs(tmp_path / "programs")


@pytest.mark.parametrize("problem", ["a colon in the path", "an interpreter that is not there"])
def test_guards_that_cannot_be_run_stop_the_start(problem, tmp_path, monkeypatch):
    folder = tmp_path / "a:b" if "colon" in problem else tmp_path
    if "colon" not in problem:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="keep foreign code out cannot be run"):
        write_programs(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_acts_like_ctrl_c(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), flower_programs.interruptible():
        os.kill(os.getpid(), number)
        time.sleep(10)
    assert signal.getsignal(number) == before


def test_every_task_that_flower_can_start_at_a_site_is_covered():
    constant = pytest.importorskip("flwr.supercore.constant")
    assert set(constant.TASK_TYPE_TO_COMMAND.values()) == {CLIENT, *REFUSED}


def test_code_that_came_with_a_run_is_neither_unpacked_nor_imported(monkeypatch):
    runtime = pytest.importorskip("flwr.supernode.runtime.run_clientapp")
    program = import_module("flwr.supernode.cli.flwr_clientapp")
    from fedrel.deployment.client_guard import main
    from fedrel.deployment.passing import app

    for name in ("install_from_fab", "get_load_client_app_fn"):
        monkeypatch.setattr(runtime, name, getattr(runtime, name))  # put back afterwards
    started = []
    monkeypatch.setattr(program, "flwr_clientapp", lambda: started.append(True))
    main()
    assert started
    assert runtime.install_from_fab(b"anything", skip_prompt=True) is None
    load = runtime.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("a/b", "1.0.0", "hash") is app


def test_a_flower_version_that_cannot_be_guarded_is_not_started(monkeypatch):
    runtime = pytest.importorskip("flwr.supernode.runtime.run_clientapp")
    from fedrel.deployment.client_guard import main

    monkeypatch.delattr(runtime, "install_from_fab")
    with pytest.raises(SystemExit, match="foreign code could not be kept out"):
        main()


def test_flags_of_the_superlink(tmp_path):
    pytest.importorskip("flwr")
    init_federation(tmp_path, ["north", "south"], "hub.example.org", 4433)
    link = superlink_program(CoordinatorFolder(tmp_path / "coordinator"))
    said = " ".join(link.command)
    assert "--insecure" not in said and "--enable-supernode-auth" in link.command
    assert "--disable-runtime-dependency-installation" in link.command
    assert link.command[link.command.index("--port") + 1] == "4433"
    assert link.environment["FLWR_TELEMETRY_ENABLED"] == "0"
    home = tmp_path / "coordinator" / "flower"
    assert link.environment["FLWR_HOME"] == str(home)
    assert 'address = "127.0.0.1:4433"' in (home / "config.toml").read_text()

    node = supernode.supernode_program(SiteFolder(tmp_path / "sites" / "south"))
    said = " ".join(node.command)
    assert "--insecure" not in said
    assert "--superlink hub.example.org:4433" in said
    assert f'site="{tmp_path / "sites" / "south"}"' in node.command
    only = Path(node.environment["PATH"])  # Flower's own programs are nowhere on it
    assert {path.name for path in only.iterdir()} == {CLIENT, STARTER, *REFUSED}


def test_a_program_ends_when_its_parent_is_killed():
    code = (
        "import os, sys\n"
        "from fedrel.deployment.flower_programs import Program, running\n"
        "sleep = Program([sys.executable, '-c', 'import time; time.sleep(600)'], os.environ)\n"
        "with running(sleep) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    process.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    await_end(pid)


def test_a_site_that_runs_already_is_not_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(flower_programs, "GRACE", 0.1)
    (tmp_path / "place.json").write_text(IDENTITY)
    with listener() as port:
        (tmp_path / "site.toml").write_text(f"local_port = {port}\n{POLICY}")
        with pytest.raises(
            UserError, match=rf"listens on port {port}(?s:.*)is north running already(?s:.*)local_port"
        ):
            supernode.run_supernode(SiteFolder(tmp_path))


def test_a_port_that_is_about_to_be_free_is_waited_for():
    with listener() as port:
        assert flower_programs.listens(port)
    flower_programs.wait_until_free(port, "")


class Clock:
    """Time that passes while somebody sleeps, and at no other time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("known", "attempts"), [(False, 1), (True, 2 + supernode.STALE // supernode.PAUSE)])
def test_a_site_that_has_answered_before_tries_again_while_it_may_count_as_connected(
    known, attempts, tmp_path, monkeypatch
):
    tried: list[int] = []

    def rejected(folder: SiteFolder) -> Program:
        tried.append(1)
        return Program(["false"], os.environ)

    monkeypatch.setattr(supernode, "supernode_program", rejected)
    monkeypatch.setattr(supernode, "time", Clock())
    (tmp_path / "place.json").write_text(IDENTITY)
    (tmp_path / "site.toml").write_text(POLICY)
    if known:
        (tmp_path / "audit.jsonl").write_text("")
    said: list[str] = []
    assert supernode.run_supernode(SiteFolder(tmp_path), said.append) == 1
    assert len(tried) == attempts and len(said) == attempts - 1
    assert all("north still counts as connected" in one for one in said)


def test_a_program_ends_with_all_that_it_started(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"  # as Flower's superexec
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    program = Program([sys.executable, "-c", code], os.environ)
    with pytest.raises(KeyboardInterrupt), running(program) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        raise KeyboardInterrupt
    assert process.returncode is not None
    await_end(int((tmp_path / "pid").read_text()))


@contextmanager
def listener() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def await_end(pid: int) -> None:
    """What is killed may take a moment to be gone."""
    state = Path(f"/proc/{pid}/status")
    for _ in range(300):
        if not state.exists() or "State:\tZ" in state.read_text():
            return
        time.sleep(0.1)
    pytest.fail("a process was left behind")
