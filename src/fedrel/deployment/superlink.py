"""The coordinator's superlink, which the sites connect to: started with a guard, and told the sites' keys.

Flower's superlink answers three kinds of caller on one port: sites (`/v1/fleet`, which needs a registered key),
the `flwr` command (`/v1/control`) and the processes that it starts itself (`/v1/runtime`). The `flwr` command
may register keys and start runs, that is, execute code here, and needs no key. So `python -m
fedrel.deployment.superlink` runs the superlink with a guard that answers the last two kinds on this machine
only. A proxy on the same machine would make all callers look local: let sites connect directly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fedrel.deployment.artefacts import digest
from fedrel.deployment.flower_programs import Program, flower_environment, needs_flower
from fedrel.deployment.folders import CONNECTION, CoordinatorFolder
from fedrel.errors import UserError
from fedrel.files import read_sealed, write_text

FOR_SITES = "/v1/fleet/"
DATABASE = "superlink.db"
ERASING = (("secure_delete", "ON"), ("journal_size_limit", "0"))

App = Callable[[Any, Any, Any], Awaitable[None]]


def superlink_program(folder: CoordinatorFolder, listen: str = "0.0.0.0") -> Program:
    """The guarded superlink: TLS, registered keys only, and nothing is installed while it runs."""
    needs_flower()
    path = folder.path.absolute()
    write_connection(folder)
    command = [
        *(sys.executable, "-P", "-m", "fedrel.deployment.superlink"),
        *("--host", listen, "--port", str(folder.federation.port)),
        *("--ssl-ca-certfile", str(path / "ca.crt")),
        *("--ssl-certfile", str(path / "server.crt"), "--ssl-keyfile", str(path / "server.key")),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--database", str(path / "flower" / DATABASE)),
    ]
    return Program(command, flower_environment(path / "flower"))


def write_connection(folder: CoordinatorFolder) -> None:
    """Write the file in which the `flwr` command finds the superlink: on this machine, by its local address."""
    import tomli_w

    authority = str(folder.path.absolute() / "ca.crt")
    link = {"address": f"127.0.0.1:{folder.federation.port}", "root-certificates": authority}
    known = {"superlink": {"default": CONNECTION, CONNECTION: link}}
    write_text(folder.flower / "config.toml", tomli_w.dumps(known))


def register_sites(folder: CoordinatorFolder) -> list[str]:
    """Register every site's public key with the running superlink; returns the names of those that are new.

    If a site's key has been replaced, or the site removed, the old one is unregistered.
    """
    kept = _registered(folder)
    before = {name: about["key"] for name, about in kept.items()}
    listed = status_by_node(folder)
    members = folder.federation.members
    for name in [one for one in kept if one not in members]:
        if kept[name]["node"] in listed:
            _flwr_supernode(folder, "unregister", kept[name]["node"], CONNECTION)
        del kept[name]
        write_text(_registered_file(folder), json.dumps(kept, indent=1))
    for name, number in members.items():
        key = folder.public_key(name)
        if not key.is_file():
            raise UserError("no such file", file=key, hint=f"get site.pub of {name} and put it there")
        mine = kept.get(name)
        if mine and mine["key"] == digest(key) and mine["node"] in listed:
            continue
        if mine and mine["node"] in listed:
            _flwr_supernode(folder, "unregister", mine["node"], CONNECTION)
        added = _flwr_supernode(folder, "register", str(key.absolute()), CONNECTION, "--name", name)
        kept[name] = {"node": str(added["node-id"]), "number": number, "key": digest(key)}
        write_text(_registered_file(folder), json.dumps(kept, indent=1))
    numbers = {kept[name]["node"]: number for name, number in members.items()}
    write_text(folder.nodes, json.dumps(numbers, indent=1))
    return [name for name, about in kept.items() if before.get(name) != about["key"]]


def status_by_node(folder: CoordinatorFolder) -> dict[str, str]:
    """Of every node that the superlink knows, by its id: registered, online or offline."""
    listed = _flwr_supernode(folder, "list", CONNECTION)["nodes"]
    return {str(one["node-id"]): one["status"] for one in listed if one["status"] != "unregistered"}


def status_by_site(folder: CoordinatorFolder) -> dict[str, str]:
    """The same of the registered sites, by the site's name."""
    listed = status_by_node(folder)
    return {
        name: listed[about["node"]] for name, about in _registered(folder).items() if about["node"] in listed
    }


class OnlySitesFromOutside:
    """Answers 403 to a caller from another machine who asks for anything but what sites need."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request, or the server's own start and end."""
        if scope["type"] == "lifespan" or scope.get("path", "").startswith(FOR_SITES) or _local(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send(
                {"type": "http.response.body", "body": b"answered on the coordinator's machine only\n"}
            )


def main() -> None:
    """Run `flower-superlink` with the guard around it."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    if not callable(getattr(extensions, "get_middleware", None)):
        raise SystemExit("this version of Flower cannot be guarded: its control API would be open to all")
    extensions.get_middleware = lambda: (Middleware(OnlySitesFromOutside),)
    overwrite_what_is_deleted()
    flower_superlink()


def overwrite_what_is_deleted() -> None:
    """Let Flower's database overwrite what it deletes: a message is deleted as soon as it was fetched."""
    from flwr.supercore import sql_mixin

    pragmas: tuple[tuple[str, str], ...] = (*sql_mixin.SQLITE_PRAGMAS, *ERASING)  # type: ignore[attr-defined]
    sql_mixin.SQLITE_PRAGMAS = pragmas  # type: ignore[attr-defined, assignment]


def purge(database: Path) -> None:
    """Empty the log that the database writes ahead, in which deleted messages would stay for a while."""
    import sqlite3

    if not database.exists():
        return
    with closing(sqlite3.connect(database, timeout=0.05)) as opened, suppress(sqlite3.Error):
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is locked just now is purged a round later


def _local(scope: dict[str, Any]) -> bool:
    try:
        return ip_address(scope["client"][0]).is_loopback
    except (KeyError, TypeError, ValueError):
        return False


def _flwr_supernode(folder: CoordinatorFolder, *arguments: str) -> dict[str, Any]:
    """What `flwr supernode` answers."""
    needs_flower()
    command = ["flwr", "supernode", *arguments, "--format", "json"]
    environment = flower_environment(folder.flower.absolute())
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"error-message": done.stderr or done.stdout}
    if done.returncode or not answer.get("success"):
        said = str(answer.get("error-message") or "").strip() or "it said nothing"
        reason = said.splitlines()[-1]
        hint = "is the coordinator running (`fedrel coordinator start`)?"
        if "already in use" in reason:
            hint = f"stop the coordinator, remove {folder.flower / DATABASE}, and start it again"
        raise UserError(f"`flwr supernode {arguments[0]}` failed: {reason}", hint=hint)
    return answer


def _registered_file(folder: CoordinatorFolder) -> Path:
    return folder.flower / "registered.json"


def _registered(folder: CoordinatorFolder) -> dict[str, dict[str, Any]]:
    path = _registered_file(folder)
    hint = "remove the file and start the coordinator again: the sites are registered anew"
    return read_sealed(path, "the list of registered sites", hint) if path.exists() else {}


if __name__ == "__main__":
    main()
