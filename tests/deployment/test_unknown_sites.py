"""Unknown sites and coordinators are rejected: real programs on this machine, each with a non-zero exit."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deployment.conftest import ALLOW, SmallFederation

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedrel[flower]'")

import tomli_w

from fedrel.cli.main import main
from fedrel.deployment.client_guard import CLIENT
from fedrel.deployment.flower_programs import (
    START_TIMEOUT,
    Program,
    flower_environment,
    flower_program,
    running,
    wait_until_listening,
)
from fedrel.deployment.folders import CONNECTION, SiteFolder, init_federation
from fedrel.deployment.keys import write_site_key
from fedrel.deployment.site_preparation import prepare_site
from fedrel.deployment.submit import _FILES
from fedrel.deployment.superlink import register_sites, superlink_program, write_connection
from fedrel.deployment.supernode import check_coordinator, supernode_program
from fedrel.files import locked
from tests.federation_e2e.testbed import rounds, wait_for

pytestmark = pytest.mark.slow  # a superlink and several programs, each of which imports Flower

INTERRUPTIBLE = """\
import signal
from fedrel.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
main()
"""


@pytest.fixture(scope="module")
def real(
    first_federation: SmallFederation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallFederation]:
    """A federation of one site with its keys, and the coordinator's superlink running."""
    folder = tmp_path_factory.mktemp("real")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    init_federation(folder, ["north"], "127.0.0.1", port)
    for name in ("kb.tsv", "dev.jsonl", "test.jsonl", "vectors.txt"):
        shutil.copy(first_federation.folder / name, folder)
    federation = SmallFederation(folder, ("north",))
    site = federation.site("north").path
    shutil.copytree(first_federation.site("north").path / "text", site / "text")
    set_policy(federation)
    federation.publish()
    prepare_site(federation.site("north"))
    program = superlink_program(federation.coordinator, "127.0.0.1")
    with running(program) as process:
        wait_until_listening(process, port, "the superlink")
        register_sites(federation.coordinator)
        yield federation


def set_policy(federation: SmallFederation, **allow: object) -> None:
    tree = {
        "coordinator": f"127.0.0.1:{federation.coordinator.federation.port}",
        "data": {"files": ["text/*.txt"]},
        "allow": {**ALLOW, **allow},
    }
    (federation.site("north").path / "site.toml").write_text(tomli_w.dumps(tree))


def fedrel_here(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The command in this process, which has imported Flower; for one that is refused before it starts anything."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(sys, "argv", ["fedrel", *map(str, arguments)])
        main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, "".join(capfd.readouterr())


def fedrel(*arguments: object, timeout: float = 900) -> tuple[int, str]:
    command = [sys.executable, "-m", "fedrel", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def other_key(folder: Path) -> Iterator[None]:
    kept = {name: (folder / name).read_bytes() for name in ("site.key", "site.pub")}
    for name in kept:
        (folder / name).unlink()
    write_site_key(folder / "site.key", folder / "site.pub", "an unknown site's")
    yield
    for name, content in kept.items():
        (folder / name).write_bytes(content)


def test_a_site_whose_key_is_not_registered_is_rejected(real):
    with other_key(real.site("north").path):
        code, output = fedrel("site", "start", real.site("north").path)
    assert code == 2 and "the coordinator does not know the key in site.pub" in output, output


def test_a_site_without_a_key_is_rejected(real, capfd):
    key = real.site("north").path / "site.key"
    program = supernode_program(real.site("north"))
    at = list(program.command).index("--auth-supernode-private-key")
    without = Program([*program.command[:at], *program.command[at + 2 :]], program.environment)
    with running(without) as process:
        assert process.wait(START_TIMEOUT) != 0
    moved = key.rename(key.with_name("away"))
    try:
        code, output = fedrel_here(capfd, "site", "start", real.site("north").path)
        assert code == 2 and "site.key: no such file" in output
    finally:
        moved.rename(key)


def test_a_coordinator_with_another_authoritys_certificate_is_rejected(real, tmp_path, capfd):
    init_federation(tmp_path / "other", ["north"], "127.0.0.1")
    authority = real.site("north").path / "ca.crt"
    own = authority.read_bytes()
    authority.write_bytes((tmp_path / "other" / "coordinator" / "ca.crt").read_bytes())
    try:
        code, output = fedrel_here(capfd, "site", "start", real.site("north").path)
        assert code == 2 and "cannot prove that it is the coordinator" in output
    finally:
        authority.write_bytes(own)
    check_coordinator(real.site("north"))


def test_a_coordinator_that_is_away_is_waited_for(real, tmp_path):
    there = (real.site("north").path / "site.toml").read_text()
    away = there.replace(f":{real.coordinator.federation.port}", ":1")
    (tmp_path / "site.toml").write_text(away)
    shutil.copy(real.site("north").path / "ca.crt", tmp_path)
    check_coordinator(SiteFolder(tmp_path))


FOREIGN = _FILES | {  # it even goes by the name of ours
    "fedrel_federation/client.py": """\
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.query()
def query(message, context):
    text = (Path(context.node_config["site"]) / "place.json").read_text()
    return Message(RecordDict({"stolen": ConfigRecord({"text": text})}), reply_to=message)
""",
    "fedrel_federation/server.py": """\
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.5)
    messages = [Message(RecordDict({"q": ConfigRecord({"a": 1})}), node, "query", ttl=60) for node in nodes]
    sent, until = list(grid.push_messages(messages)), time.monotonic() + 30
    replies = []
    while not replies and time.monotonic() < until:
        replies = list(grid.pull_messages(sent))
        time.sleep(0.5)
    print("replies:", [list(reply.content) if reply.has_content() else "error" for reply in replies], flush=True)
""",
}


@pytest.mark.parametrize("guard", ["as it is", "not executable"])
def test_code_that_a_coordinator_sends_is_not_run(guard, real, tmp_path):
    for name, text in FOREIGN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    node, home = supernode_program(real.site("north")), real.coordinator.flower.absolute()
    if guard != "as it is":
        (Path(node.environment["PATH"]) / CLIENT).chmod(0)
    write_connection(real.coordinator)
    with running(node):
        command = [flower_program("flwr"), "run", str(tmp_path), CONNECTION, "--stream"]
        done = subprocess.run(
            command, env=flower_environment(home), capture_output=True, text=True, timeout=300, check=False
        )
    expected = "[['refusal']]" if guard == "as it is" else "[]"
    assert f"replies: {expected}" in done.stdout, done.stdout + done.stderr


def test_ctrl_c_stops_the_run_and_it_goes_on_from_there(real):
    out, log = real.coordinator.runs / "stopped", real.folder / "stopped.log"
    set_policy(real, rounds=10_000)
    asked = ["--folder", real.coordinator.path, "--set", "engine.deadline=600", "--name", "stopped"]
    real.publish_only()
    with running(supernode_program(real.site("north"))), log.open("w") as said:
        arguments = ["federation", "run", real.write(), *asked, "--set", "training.rounds=9999"]
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, *map(str, arguments)], stdout=said, stderr=said
        )
        wait_for(lambda: len(rounds(out)) > 1, "two rounds")
        process.send_signal(signal.SIGINT)
        assert process.wait(START_TIMEOUT) == 130, log.read_text()
        assert "stopping the run" in log.read_text() and "add --resume" in log.read_text()
        with locked(out):  # nobody works there any more
            done = len(rounds(out))
        more = ("--resume", "--set", f"training.rounds={done + 1}")
        code, output = fedrel("federation", "run", real.write(), *asked, *more)
        assert code == 0, output
    assert [line["round"] for line in rounds(out)] == [*range(1, done + 2)]


def test_a_site_refuses_what_it_was_not_prepared_for_and_what_it_does_not_allow(real):
    with running(supernode_program(real.site("north"))):
        asked = ("--folder", real.coordinator.path, "--set", "engine.deadline=600")
        real.publish_only(seed=9)  # the coordinator published anew, the site was not told
        code, output = fedrel("federation", "run", real.write(seed=9), *asked, "--name", "other")
        assert code == 2
        assert "north refused the request: its config is not the one that was published" in output
        real.publish_only()
        set_policy(real, rounds=0, may_leave=["Update"])
        code, output = fedrel("federation", "run", real.write(), *asked, "--name", "census")
        assert code == 2
        assert "north refused the request: its site.toml does not allow the message" in output
        set_policy(real, rounds=0)
        code, output = fedrel("federation", "run", real.write(), *asked, "--name", "rounds")
        assert code == 2
        assert "its site.toml allows at most 0 rounds" in output
    code, output = fedrel("site", "audit", real.site("north").path)
    assert code == 0
    notes = [json.loads(line)["entry"]["note"] for line in real.site("north").audit.read_text().splitlines()]
    assert sum("its config is not the one" in note for note in notes) == 1
    assert sum("asked for round 1" in note for note in notes) >= 1
