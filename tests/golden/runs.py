"""How a config becomes a run folder: the only file of `tests.golden` that imports `fedrel`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_config(tree: Mapping[str, Any], out: Path) -> None:
    """Run a config; afterwards `out` has `checkpoint/`, `metrics.jsonl` and `result.json`."""
    import fedrel

    fedrel.run(tree, out, report=False)


def run_without_kernels(tree: Mapping[str, Any], out: Path) -> None:
    """The same in a new process, which does not use numba: a process decides that only once."""
    command = [sys.executable, "-m", "tests.golden.runs", json.dumps(tree), str(out)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "FEDREL_KERNELS": "off"}, check=True)


def known_methods() -> set[str]:
    """The names of all methods that the package has."""
    from fedrel.methods.by_name import methods

    return set(methods())


if __name__ == "__main__":
    run_config(json.loads(sys.argv[1]), Path(sys.argv[2]))
