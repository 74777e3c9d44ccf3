"""Who is registered and connected, and what the status shows, with made-up answers of Flower."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from fedrel.deployment import superlink
from fedrel.deployment.folders import CoordinatorFolder
from fedrel.deployment.status import federation_status, status_table
from fedrel.errors import UserError


class Register:
    """Flower's register of nodes, as `flwr supernode` shows and changes it."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}  # node id: key
        self.calls: list[str] = []
        self.next = 100

    def __call__(self, folder: CoordinatorFolder, verb: str, *arguments: str) -> dict[str, Any]:
        self.calls.append(verb)
        if verb == "register":
            self.next += 1
            self.known[str(self.next)] = Path(arguments[0]).read_text()
            return {"node-id": self.next}
        if verb == "unregister":
            del self.known[arguments[0]]
            return {}
        return {"nodes": [{"node-id": node, "status": "online"} for node in self.known]}


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Register:
    register = Register()
    monkeypatch.setattr(superlink, "_flwr_supernode", register)
    return register


@pytest.fixture
def folder(tmp_path: Path) -> CoordinatorFolder:
    table = {"host": "localhost", "port": 9092, "sites": ["north", "south"]}
    (tmp_path / "federation.toml").write_text(tomli_w.dumps(table))
    (tmp_path / "sites").mkdir()
    for name in table["sites"]:
        (tmp_path / "sites" / f"{name}.pub").write_text(f"key of {name}")
    return CoordinatorFolder(tmp_path)


def test_keys_are_registered_once(folder, flower):
    assert superlink.register_sites(folder) == ["north", "south"]
    assert json.loads(folder.nodes.read_text()) == {"101": 0, "102": 1}
    flower.calls.clear()
    assert superlink.register_sites(folder) == []
    assert flower.calls == ["list"]


def test_a_replaced_key_is_registered_instead_of_the_old_one(folder, flower):
    superlink.register_sites(folder)
    folder.public_key("north").write_text("new key of north")
    assert superlink.register_sites(folder) == ["north"]
    assert flower.known == {"102": "key of south", "103": "new key of north"}
    assert json.loads(folder.nodes.read_text()) == {"103": 0, "102": 1}


def test_a_register_that_was_lost_is_filled_again(folder, flower):
    superlink.register_sites(folder)
    flower.known.clear()
    superlink.register_sites(folder)
    assert json.loads(folder.nodes.read_text()) == {"103": 0, "104": 1}


def test_a_missing_key_is_an_error_that_names_the_file(folder, flower):
    folder.public_key("south").unlink()
    with pytest.raises(UserError, match=r"south.pub: no such file(?s:.*)site.pub of south"):
        superlink.register_sites(folder)


def test_status_of_the_latest_run(folder, flower):
    superlink.register_sites(folder)
    del flower.known["102"]
    assert federation_status(folder).run is None
    out = folder.runs / "first"
    out.mkdir(parents=True)
    sites = [
        {"name": "north", "sentences": 1500, "last_answer": time.time() - 7300, "round": 2},
        {"name": "south", "sentences": None, "last_answer": None, "round": None},
    ]
    (out / "federation.json").write_text(json.dumps({"sites": sites}))
    refused = [{"site": 1, "message": "Update", "reason": "is not connected"}]
    lines = [
        {"round": 1, "bytes": {"up": 1000, "down": 3000}, "refused": []},
        {"round": 2, "bytes": {"up": 1000, "down": 3000}, "refused": refused},
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    found = federation_status(folder)
    assert (found.run, found.round, found.up, found.down) == ("first", 2, 2000, 6000)
    assert [site.node for site in found.sites] == ["online", "not registered"]
    console = Console(record=True, width=100)
    console.print(status_table(found))
    text = console.export_text()
    for part in ("run first, round 2", "1,500", "2 h ago", "left out: south is not connected"):
        assert part in text


def test_status_without_a_coordinator(folder, monkeypatch):
    def away(*_: object) -> dict[str, Any]:
        raise UserError("no answer")

    monkeypatch.setattr(superlink, "_flwr_supernode", away)
    assert {site.node for site in federation_status(folder).sites} == {"coordinator not running"}
