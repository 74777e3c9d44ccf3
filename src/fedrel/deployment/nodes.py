"""Flower's register of the sites' keys: who is known, under which number, and who is there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from fedrel.deployment.artefacts import digest
from fedrel.deployment.folders import CONNECTION, CoordinatorFolder
from fedrel.deployment.programs import environment, needs_flower
from fedrel.errors import UserError
from fedrel.files import write_text


def register(folder: CoordinatorFolder) -> list[str]:
    """Make the superlink, which must be running, know every site's key; the names of those that are new.

    A site whose key has been replaced is known by the new one only.
    """
    kept = _kept(folder)
    before = {name: about["key"] for name, about in kept.items()}
    listed = nodes(folder)
    for number, name in enumerate(folder.federation.sites):
        key = folder.public_key(name)
        if not key.is_file():
            raise UserError("no such file", file=key, hint=f"get site.pub of {name} and put it there")
        mine = kept.get(name)
        if mine and mine["key"] == digest(key) and mine["node"] in listed:
            continue
        if mine and mine["node"] in listed:
            _flwr(folder, "unregister", mine["node"], CONNECTION)
        node = _flwr(folder, "register", str(key.absolute()), CONNECTION, "--name", name)["node-id"]
        kept[name] = {"node": str(node), "number": number, "key": digest(key)}
        write_text(_register(folder), json.dumps(kept, indent=1))
    numbers = {kept[name]["node"]: number for number, name in enumerate(folder.federation.sites)}
    write_text(folder.nodes, json.dumps(numbers, indent=1))
    return [name for name, about in kept.items() if before.get(name) != about["key"]]


def nodes(folder: CoordinatorFolder) -> dict[str, str]:
    """Every node that the superlink knows, by its id: registered, online or offline."""
    listed = _flwr(folder, "list", CONNECTION)["nodes"]
    return {str(one["node-id"]): one["status"] for one in listed if one["status"] != "unregistered"}


def by_site(folder: CoordinatorFolder) -> dict[str, str]:
    """The same of the registered sites, by the site's name."""
    listed = nodes(folder)
    return {name: listed[about["node"]] for name, about in _kept(folder).items() if about["node"] in listed}


def _flwr(folder: CoordinatorFolder, *arguments: str) -> dict[str, Any]:
    """What `flwr supernode` answers."""
    needs_flower()
    command = ["flwr", "supernode", *arguments, "--format", "json"]
    surroundings = environment(folder.flower.absolute())
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"error-message": done.stderr or done.stdout}
    if done.returncode or not answer.get("success"):
        said = str(answer.get("error-message") or "").strip() or "it said nothing"
        reason = said.splitlines()[-1]
        hint = "is the coordinator running (`fedrel coordinator start`)?"
        if "already in use" in reason:
            hint = f"stop the coordinator, remove {folder.flower / 'superlink.db'}, and start it again"
        raise UserError(f"`flwr supernode {arguments[0]}` failed: {reason}", hint=hint)
    return answer


def _register(folder: CoordinatorFolder) -> Path:
    return folder.flower / "registered.json"


def _kept(folder: CoordinatorFolder) -> dict[str, dict[str, Any]]:
    path = _register(folder)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
