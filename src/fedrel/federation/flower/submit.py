"""Handing a run to the coordinator's superlink, and following it until it ends."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from fedrel.errors import UserError
from fedrel.federation.flower.programs import environment, needs_flower, program

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
    "fedrel_federation/server.py": "from fedrel.federation.flower import server\n\napp = server.app\n",
    "fedrel_federation/client.py": "from fedrel.federation.flower import client\n\napp = client.app\n",
}


def submit(request: Path, *, home: Path, connection: str, say: Callable[[str], None] = print) -> None:
    """Run what the request file asks for on the superlink that `home` knows by this name, and wait for the end.

    `say` is told what the coordinator's process prints. `UserError` with the reason if the run failed.
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
        command = [program("flwr"), "run", name, connection, "--stream", "--run-config", config]
        with subprocess.Popen(
            command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            last: deque[str] = deque(maxlen=LINES)
            for line in process.stdout:
                say(line.rstrip())
                last.extend(filter(None, [line.strip(" \n│╭╮╰╯─")]))  # without the frames that Flower draws
    if not outcome.exists():
        remedy = "look at the superlink's log; what was trained is kept, and --resume goes on with it"
        raise UserError(
            f"the run ended without a result: {' '.join(last) or 'nothing was said'}", remedy=remedy
        )
    if problem := json.loads(outcome.read_text(encoding="utf-8"))["problem"]:
        raise UserError(problem)
