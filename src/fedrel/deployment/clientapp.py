"""`flwr-clientapp` as a site runs it: Flower's own program, but the only app it ever runs is the installed fedrel.

Flower sends an app's code along with a run and would execute it at the site, where it could read the text and send
it off, past every rule of `site.toml`. Here the code that came is neither unpacked nor imported. `site start`
puts this program first on the path of the processes it starts, and beside it one for each other kind of task that
Flower knows, which refuses.
"""

from __future__ import annotations

import stat
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

CLIENT = "flwr-clientapp"
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def main() -> None:
    """Answer one message with fedrel's own app."""
    runtime = import_module("flwr.supernode.runtime.run_clientapp")
    for name, ours in {"install_from_fab": _unpack_nothing, "get_load_client_app_fn": _only_ours}.items():
        if not callable(getattr(runtime, name, None)):
            raise SystemExit(f"this version of Flower has no {name}: foreign code could not be kept out")
        setattr(runtime, name, ours)
    import_module("flwr.supernode.cli.flwr_clientapp").flwr_clientapp()


def refuse() -> None:
    """End at once: a site has no task of this kind."""
    raise SystemExit(f"{Path(sys.argv[0]).name}: a site of fedrel runs no such task")


def write_programs(folder: Path) -> None:
    """Put these programs in a folder, to stand first on a path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CLIENT, *REFUSED):
        program = folder / name
        call = "main" if name == CLIENT else "refuse"
        line = f"from fedrel.deployment.clientapp import {call}"
        program.write_text(f"#!{sys.executable}\n{line}\n\n{call}()\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def _unpack_nothing(*_: Any, **__: Any) -> None:
    """In place of unpacking what came."""


def _only_ours(*_: Any, **__: Any) -> Any:
    """In place of importing what came."""

    def load(*_: Any) -> Any:
        from fedrel.federation.flower.client import app

        return app

    return load
