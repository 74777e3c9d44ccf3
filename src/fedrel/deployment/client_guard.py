"""Flower's client program as a site runs it: the only app that it ever runs is the installed fedrel.

Flower sends an app's code along with a run and would execute it at the site. That code could read the text and send
it away, past every rule of `site.toml`. Here the code that came is neither unpacked nor imported. Flower starts its
programs by name, so `site start` sets a PATH with one folder, which holds our `flwr-clientapp` and a program that
refuses for each other kind of task that Flower knows. If these cannot be executed, nothing is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from fedrel.errors import UserError

CLIENT = "flwr-clientapp"
STARTER = "flower-superexec"  # Flower's own program, which starts the others
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
NO_TASK = "a site of fedrel runs no such task"


def main() -> None:
    """Answer one message with fedrel's own app."""
    runtime = import_module("flwr.supernode.runtime.run_clientapp")
    for name, ours in {"install_from_fab": _unpack_nothing, "get_load_client_app_fn": _only_ours}.items():
        if not callable(getattr(runtime, name, None)):
            raise SystemExit(f"this version of Flower has no {name}: foreign code could not be kept out")
        setattr(runtime, name, ours)
    import_module("flwr.supernode.cli.flwr_clientapp").flwr_clientapp()


def start_tasks() -> None:
    """Flower's program that starts the others, and the site's runner beside it."""
    from fedrel.deployment import task_starter

    task_starter.start_tasks(CLIENT, main)


def refuse() -> None:
    """Exit at once: a site has no task of this kind."""
    raise SystemExit(f"{Path(sys.argv[0]).name}: {NO_TASK}")


def write_programs(folder: Path) -> None:
    """Write these programs to a folder that will be the whole PATH, and check that they run there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, call in {CLIENT: "main", STARTER: "start_tasks", **dict.fromkeys(REFUSED, "refuse")}.items():
        program = folder / name
        start = (
            f'#!/bin/sh\n"exec" "{sys.executable}" "$0" "$@"'  # to Python, the second line is only strings
        )
        line = f"from fedrel.deployment.client_guard import {call}"
        program.write_text(f"{start}\n{line}\n\n{call}()\n", encoding="utf-8")
        program.chmod(0o700)
    try:
        tried = subprocess.run(
            [REFUSED[0]], env=os.environ | {"PATH": str(folder)}, capture_output=True, text=True, check=False
        )
        said = tried.stderr
    except OSError as error:
        said = str(error)
    if NO_TASK not in said:
        problem = (
            f"the programs that keep foreign code out cannot be run: {said.strip() or 'there was no output'}"
        )
        hint = "keep the site's folder where programs may be executed, under a path without a colon"
        raise UserError(problem, file=folder, hint=hint)


def _unpack_nothing(*_: Any, **__: Any) -> None:
    """Called instead of unpacking what came."""


def _only_ours(*_: Any, **__: Any) -> Any:
    """Called instead of importing what came."""

    def load(*_: Any) -> Any:
        from fedrel.deployment.passing import app

        return app

    return load
