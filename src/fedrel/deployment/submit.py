"""Handing a run to the coordinator's superlink, and following it until it ends."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from fedrel.deployment.programs import environment, needs_flower, program
from fedrel.errors import UserError

STARTED = re.compile(r"started run (\d+)")  # as `flwr run` says it
LINES = 8  # of what was said last, for the message of a run that failed

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
    "fedrel_federation/client.py": "from fedrel.deployment import client_app\n\napp = client_app.app\n",
}


def submit(request: Path, *, home: Path, connection: str, say: Callable[[str], None] = print) -> None:
    """Run what the request file asks for on the superlink that `home` knows by this name, and wait for the end.

    `say` is told what the coordinator's process prints. `UserError` with the reason if the run failed. Ctrl-C stops
    the run itself: without that, only this command would end.
    """
    needs_flower()
    outcome = request.with_suffix(".outcome.json")
    outcome.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="fedrel-") as name:
        folder = Path(name)
        for file, text in _FILES.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        config = f"request={json.dumps(str(request.absolute()))}"
        last = _follow(name, config, home, connection, say)
    if not outcome.exists():
        hint = (
            "see what `fedrel coordinator start` says; what was trained is kept, and --resume goes on with it"
        )
        raise UserError(f"the run ended without a result: {' '.join(last) or 'nothing was said'}", hint=hint)
    if mistake := json.loads(outcome.read_text(encoding="utf-8"))["mistake"]:
        raise UserError.from_json(mistake)


def _follow(app: str, config: str, home: Path, connection: str, say: Callable[[str], None]) -> Sequence[str]:
    """Start a run and pass on what is said until it ends; the last lines of it."""
    flwr, surroundings = program("flwr"), environment(home) | {"PYTHONUNBUFFERED": "1"}
    run: str | None = None
    last: deque[str] = deque(maxlen=LINES)
    with subprocess.Popen(
        [flwr, "run", app, connection, "--stream", "--run-config", config],
        env=surroundings,
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
                subprocess.run([flwr, "stop", run, connection], env=surroundings, check=False)
            process.terminate()
            raise
    return last


def _started(line: str) -> str | None:
    """The number that Flower gave the run, where a line says it."""
    found = STARTED.search(line)
    return found and found[1]
