"""`environment.json`: the versions, platform and commit that a run was made with, and its data's fingerprint."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedrel.errors import UserError
from fedrel.files import ELSEWHERE
from fedrel.runs.folder import read_json
from fedrel.runs.records import Environment
from fedrel.tensors.machine import processor

_log = logging.getLogger(__name__)

PACKAGES = (
    "fedrel",
    "torch",
    "numpy",
    "numba",
    "transformers",
    "tokenizers",
    "peft",
    "safetensors",
    "pydantic",
)


def environment(data_fingerprint: str, precision: str) -> Environment:
    """The environment of this process; `precision` is that of matrix products."""
    return Environment(
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        processor=processor(),
        precision=precision,
        commit=_commit(),
        data_fingerprint=data_fingerprint,
    )


def check_same_data(folder: Path, now: Environment) -> None:
    """Fail if a run's data have changed since it began; say so if it goes on in another precision or elsewhere."""
    begun: Environment = read_json(Environment, folder / "environment.json")
    for difference in differences(begun, now):
        _log.warning("the run goes on, but not to the same digits: %s", difference)
    if begun.data_fingerprint != now.data_fingerprint:
        problem = "the data are not those that this run began with"
        raise UserError(problem, file=folder, hint=f"restore the data files, or {ELSEWHERE}")


def differences(one: Environment, other: Environment) -> list[str]:
    """In what two environments differ that changes the last digits of results: processor and precision."""
    return [
        f"{key} was {before}, is {now}"
        for key in ("precision", "processor")
        if (before := getattr(one, key)) and (now := getattr(other, key)) and before != now
    ]


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def _commit() -> str | None:
    """The commit of the source tree this package runs from, with `+` if it has been changed since.

    As it was when a process asked first: what is changed later is not what the process has imported.
    """
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip() or None
