"""Flower's own programs: whether they are there, and the environment in which they stay quiet and offline."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from fedrel.errors import UserError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""No telemetry, no look for updates, no installing while a run goes on."""


def environment(home: Path) -> dict[str, str]:
    """The environment for Flower's programs; they start one another by name, from this interpreter's folder."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}


def program(name: str) -> str:
    """One of Flower's programs, from this interpreter's folder."""
    return str(Path(sys.executable).parent / name)


def needs_flower() -> None:
    """Refuse to go on where Flower is not installed."""
    if find_spec("flwr") is None:
        raise UserError("Flower is not installed", hint="run `pip install fedrel[flower]`")


def needs_simulation() -> None:
    """Refuse to go on where Flower's simulation has nothing to run on."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        problem = "Flower or Ray, which its simulation runs on, is not installed"
        raise UserError(problem, hint="run `pip install fedrel[flower-simulation]`")
