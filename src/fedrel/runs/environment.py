"""Where a run was made: versions, platform, commit, and the fingerprint of its data."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

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


def environment(data_fingerprint: str) -> dict[str, Any]:
    """What someone needs to know who wants the same numbers."""
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": _commit(),
        "data_fingerprint": data_fingerprint,
    }


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
