"""`environment.json`: the versions, platform and commit that a run was made with, and its data's fingerprint."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedrel.errors import UserError
from fedrel.files import ELSEWHERE
from fedrel.runs.folder import read_json
from fedrel.runs.records import Environment

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


def environment(data_fingerprint: str) -> Environment:
    """The environment of this process."""
    return Environment(
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        commit=_commit(),
        data_fingerprint=data_fingerprint,
    )


def check_same_data(folder: Path, data_fingerprint: str) -> None:
    """Fail if a run's data have changed since it began."""
    begun: Environment = read_json(Environment, folder / "environment.json")
    if begun.data_fingerprint != data_fingerprint:
        problem = "the data are not those that this run began with"
        raise UserError(problem, file=folder, hint=f"restore the data files, or {ELSEWHERE}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str | None:
    """The commit of the source tree this package runs from, with `+` if it has been changed since."""
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
