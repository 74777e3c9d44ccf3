"""Running an experiment between real sites: give it to the coordinator's superlink, follow it until it ends."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.deployment.experiment import AWAY, Experiment
from fedrel.deployment.flower_programs import (
    flower_environment,
    flower_program,
    interruptible,
    listens,
    needs_flower,
)
from fedrel.deployment.folders import CONNECTION, CoordinatorFolder
from fedrel.deployment.publishing import check_published
from fedrel.deployment.superlink import write_connection
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.files import ScratchFolder, is_in_use, write_text

WAIT = 60.0  # seconds for a process of Flower's to notice that its run was stopped
STARTED = re.compile(r"started run (\d+)")  # as `flwr run` prints it
LINES = 8  # of the last output, for the error of a run that failed

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedrel-federation"
version = "1.0.0"
description = "Starts what is installed: the programs of fedrel"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "fedrel"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "fedrel_federation.server:app"
clientapp = "fedrel_federation.client:app"

[tool.flwr.app.config]
request = ""
"""
_FILES = {
    "pyproject.toml": _PYPROJECT,
    "LICENSE": "Apache-2.0\n",
    "README.md": "The code is in the fedrel package, which the coordinator and every site have installed.\n",
    "fedrel_federation/__init__.py": "",
    "fedrel_federation/server.py": "from fedrel.deployment import server_app\n\napp = server_app.app\n",
    "fedrel_federation/client.py": "from fedrel.deployment import passing\n\napp = passing.app\n",
}


def run_experiment(
    folder: CoordinatorFolder,
    experiment: Experiment,
    name: str,
    *,
    resume: bool,
    from_round: int | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Train between the sites that are connected, and wait for the end; returns the run folder."""
    port = folder.federation.port
    check_published(folder, experiment)
    if not listens(port):
        problem = f"no coordinator listens on port {port} of this machine"
        raise UserError(problem, hint="run `fedrel coordinator start` first, in another terminal")
    out = folder.runs.absolute() / name
    request = {
        "config": config_for_sites(experiment, folder.federation.sites).model_dump(mode="json"),
        "coordinator": str(folder.path.absolute()),
        "out": str(out),
        "resume": resume,
        "from_round": from_round,
    }
    file = folder.runs.absolute() / f"{name}.request.json"
    write_text(file, json.dumps(request, indent=1))
    write_connection(folder)
    # A coordinator that was killed may have left a process behind, which takes a moment to end.
    wait_until_unlocked(out, WAIT, say)
    try:
        with interruptible():
            submit(file, home=folder.flower.absolute(), connection=CONNECTION, say=say)
    except KeyboardInterrupt:
        wait_until_unlocked(out, WAIT, say)
        raise
    except UserError:
        if listens(port):
            raise
        hint = "start it again, and go on with --resume"
        raise UserError("the coordinator has stopped", hint=hint) from None
    return out


def config_for_sites(experiment: Experiment, sites: list[str]) -> Config:
    """The config that the coordinator runs and sends: without the path of vectors or of anyone's text."""
    section = experiment.config.extractor
    kind = extractor_kind(section.kind)
    config = experiment.config.model_copy(update={"extractor": kind.at_coordinator(section)})
    tree: dict[str, Any] = config.model_dump(mode="json", exclude={"data", "sweep"})
    if kind.unit == "documents":
        tree["data"] = AWAY
    tree["partition"] = {"sites": len(sites)}
    tree["engine"]["kind"] = "flower"
    tree["case_study"] = 0  # it would show training sentences, which are not here
    return Config.model_validate(tree)


def submit(request: Path, *, home: Path, connection: str, say: Callable[[str], None] = print) -> None:
    """Run what the request file asks for on the superlink that `home` knows by this name, and wait for the end.

    `say` gets what the coordinator's process prints. `UserError` with the reason if the run fails. Ctrl-C stops
    the run itself, not only this command.
    """
    needs_flower()
    outcome = request.with_suffix(".outcome.json")
    outcome.unlink(missing_ok=True)
    with ScratchFolder() as name:
        folder = Path(name)
        for file, text in _FILES.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        config = f"request={json.dumps(str(request.absolute()))}"
        last = _follow(name, config, home, connection, say)
    if not outcome.exists():
        problem = f"the run ended without a result: {' '.join(last) or 'there was no output'}"
        hint = "see the output of `fedrel coordinator start`; what was trained is kept: go on with --resume"
        raise UserError(problem, hint=hint)
    if mistake := json.loads(outcome.read_text(encoding="utf-8"))["mistake"]:
        raise UserError.from_json(mistake)


def _follow(app: str, config: str, home: Path, connection: str, say: Callable[[str], None]) -> Sequence[str]:
    """Start a run and pass on its output until it ends; returns the last lines."""
    flwr, environment = flower_program("flwr"), flower_environment(home) | {"PYTHONUNBUFFERED": "1"}
    run: str | None = None
    last: deque[str] = deque(maxlen=LINES)
    with subprocess.Popen(
        [flwr, "run", app, connection, "--stream", "--run-config", config],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a Ctrl-C is for this process alone
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                run = run or _started(line)
                say(line.rstrip())
                last.extend(filter(None, [line.strip(" \n│╭╮╰╯─")]))  # without the frames that Flower draws
        except KeyboardInterrupt:
            if run := run or next(filter(None, map(_started, process.stdout)), None):
                say("stopping the run")
                subprocess.run([flwr, "stop", run, connection], env=environment, check=False)
            process.terminate()
            raise
    return last


def _started(line: str) -> str | None:
    """The number that Flower gave the run, if this line has it."""
    found = STARTED.search(line)
    return found and found[1]


def wait_until_unlocked(folder: Path, seconds: float, say: Callable[[str], None]) -> None:
    """Return when no process holds a folder's lock, or after so many seconds; say that it waits, if it does."""
    until = time.monotonic() + seconds
    if is_in_use(folder):
        say(f"waiting for the process to end that works in {folder}")
        while time.monotonic() < until and is_in_use(folder):
            time.sleep(0.2)
