"""A site joins, a site leaves, certificates are renewed; each end of a certificate is said thirty days ahead."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fedrel.deployment import superlink
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder, init_federation
from fedrel.deployment.keys import check_address, expiry_notes
from fedrel.deployment.membership import add_site, remove_site, renew
from fedrel.deployment.policy import SitePolicy, check_tensors
from fedrel.errors import UserError
from tests.deployment.lock import LEFT_OUT, LOCK, needed, pinned
from tests.deployment.test_folders import certificate, verify


@pytest.fixture
def made(tmp_path: Path) -> Path:
    init_federation(tmp_path / "fed", ["north", "south"], "coordinator.example")
    return tmp_path / "fed"


def test_a_site_joins(made: Path) -> None:
    coordinator = CoordinatorFolder(made / "coordinator")
    assert add_site(made / "authority", coordinator, "west", made / "sites" / "west")
    again = CoordinatorFolder(made / "coordinator")
    assert again.federation.sites == ["north", "south", "west"]
    site = SiteFolder(made / "sites" / "west")
    assert (site.number, site.name, site.path.stat().st_mode & 0o777) == (2, "west", 0o700)
    assert site.triple_key == SiteFolder(made / "sites" / "north").triple_key
    assert again.public_key("west").read_text() == (site.path / "site.pub").read_text()
    verify(certificate(site.path / "runtime.crt"), certificate(made / "authority" / "ca.crt"), "localhost")
    with pytest.raises(UserError, match="is named twice"):
        add_site(made / "authority", again, "west", made / "sites" / "other")


def test_a_site_that_joins_elsewhere_needs_the_others_secret(made: Path, tmp_path: Path) -> None:
    assert not add_site(
        made / "authority", CoordinatorFolder(made / "coordinator"), "west", tmp_path / "west"
    )
    assert not (tmp_path / "west" / "triple.key").exists()


def test_a_site_leaves_and_the_others_keep_their_numbers(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_site(CoordinatorFolder(made / "coordinator"), "north")
    coordinator = CoordinatorFolder(made / "coordinator")
    assert coordinator.federation.members == {"south": 1}
    assert not coordinator.public_key("north").exists()
    for problem, wrong in (
        ("no site that takes part is called 'north'", lambda: remove_site(coordinator, "north")),
        ("'south' is the last site", lambda: remove_site(coordinator, "south")),
        (
            "'north' left the federation",
            lambda: add_site(made / "authority", coordinator, "north", made / "sites" / "again"),
        ),
    ):
        with pytest.raises(UserError, match=problem):
            wrong()
    asked: list[tuple[str, ...]] = []

    def answer(_: CoordinatorFolder, *arguments: str) -> dict[str, Any]:
        asked.append(arguments)
        nodes = [{"node-id": 11, "status": "online"}, {"node-id": 12, "status": "offline"}]
        return {"nodes": nodes, "node-id": 12}

    monkeypatch.setattr(superlink, "_flwr_supernode", answer)
    superlink.write_text(
        coordinator.flower / "registered.json",
        '{"north": {"node": "11", "number": 0, "key": "x"}}',
    )
    assert superlink.register_sites(coordinator) == ["south"]
    assert ("unregister", "11", "fedrel") in asked  # its key no longer works
    assert coordinator.nodes.read_text().split() == ["{", '"12":', "1", "}"]


def test_certificates_are_renewed(made: Path) -> None:
    folders = [made / "coordinator", made / "sites" / "south"]
    before = [certificate(folders[0] / "server.crt"), certificate(folders[1] / "runtime.crt")]
    written = renew(made / "authority", folders)
    assert [path.name for path in written] == ["server.crt", "runtime.crt"]
    for old, path, host in zip(before, written, ("coordinator.example", "localhost"), strict=True):
        verify(certificate(path), certificate(made / "authority" / "ca.crt"), host)
        assert certificate(path).serial_number != old.serial_number
        assert path.with_suffix(".key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UserError, match="has no certificate to renew"):
        renew(made / "authority", [made])
    shutil.rmtree(made / "authority")
    with pytest.raises(UserError, match="cannot sign certificates"):
        renew(made / "authority", folders)


@pytest.mark.parametrize(("days", "noted"), [(31, 0), (29, 1), (1, 1)])
def test_an_end_is_said_thirty_days_ahead(days: int, noted: int, made: Path) -> None:
    path = made / "coordinator" / "server.crt"
    end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    notes = expiry_notes([path], end - timedelta(days=days))
    assert len(notes) == noted
    assert all(f"in {days} days" in note and "federation renew" in note for note in notes)


def test_a_certificate_that_has_ended_is_refused(made: Path) -> None:
    path = made / "coordinator" / "server.crt"
    with pytest.raises(UserError, match=r"server\.crt: ended on .*\nhint: .*federation renew"):
        expiry_notes([path], datetime.now(UTC) + timedelta(days=800))
    path.write_text("nothing")
    with pytest.raises(UserError, match="is not a certificate"):
        expiry_notes([path])


def test_an_address_to_listen_on() -> None:
    for address in ("127.0.0.1", "0.0.0.0"):
        check_address(address)
    for address in ("somewhere", "203.0.113.7"):
        with pytest.raises(UserError, match=f"cannot listen on '{address}'"):
            check_address(address)


def test_a_rule_about_a_tensor_that_is_none(tmp_path: Path) -> None:
    known = ["words.weight", "filters.weight"]

    def policy(rule: str) -> SitePolicy:
        allow = {"may_leave": ["Update"], "must_stay": [rule]}
        return SitePolicy.model_validate({"coordinator": "a:1", "allow": allow})

    for rule in (
        "Update.weights/words.weight",
        "Update.weights/words.weight/index",
        "Update.examples",
        "Update",
    ):
        check_tensors(policy(rule), known, tmp_path)
    with pytest.raises(UserError, match=r"no tensor 'word.weight'\nhint: did you mean 'words.weight'"):
        check_tensors(policy("Update.weights/word.weight"), known, tmp_path)


def test_a_misspelt_rule_protected_nothing() -> None:
    """As it was: nobody compares rules with the model's tensors, and the words leave."""
    allow = {"may_leave": ["Update"], "must_stay": ["Update.weights/word.weight"]}
    rules = SitePolicy.model_validate({"coordinator": "a:1", "allow": allow}).allow
    assert rules.lets("Update", "weights/words.weight/values")


def test_what_flower_deleted_stayed_in_its_files(tmp_path: Path) -> None:
    """As it was: SQLite marks a page as free and leaves what is on it."""
    import sqlite3

    secret = b"a site's update " * 2000
    with closing(sqlite3.connect(tmp_path / "superlink.db")) as opened:
        opened.execute("PRAGMA secure_delete = OFF")
        opened.execute("CREATE TABLE objects (content BLOB)")
        opened.execute("INSERT INTO objects VALUES (?)", (secret,))
        opened.commit()
        opened.execute("DELETE FROM objects")
        opened.commit()
    assert secret[:100] in (tmp_path / "superlink.db").read_bytes()


def test_what_flower_deletes_is_gone_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    from flwr.supercore import sql_mixin

    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)
    superlink.overwrite_what_is_deleted()
    assert ("secure_delete", "ON") in sql_mixin.SQLITE_PRAGMAS
    secret = b"a site's update " * 2000
    opened = sqlite3.connect(tmp_path / "superlink.db")
    sql_mixin._set_sqlite_pragmas(opened, None)
    opened.execute("CREATE TABLE objects (content BLOB)")
    opened.execute("INSERT INTO objects VALUES (?)", (secret,))
    opened.commit()
    assert any(secret[:100] in path.read_bytes() for path in tmp_path.iterdir())
    opened.execute("DELETE FROM objects")
    opened.commit()
    superlink.purge(tmp_path / "superlink.db")
    assert not any(secret[:100] in path.read_bytes() for path in tmp_path.iterdir())
    opened.close()
    superlink.purge(tmp_path / "none.db")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(
    "unit", ["coordinator/fedrel-coordinator.service", "sites/north/fedrel-north.service"]
)
def test_systemd_accepts_the_units(unit: str, made: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", made / unit], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    return not subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode


@pytest.mark.skipif(not has_compose(), reason="Docker's compose is not installed")
@pytest.mark.parametrize("folder", ["coordinator", "sites/north"])
def test_docker_accepts_the_compose_files(folder: str, made: Path) -> None:
    subprocess.run(["docker", "compose", "config", "--quiet"], cwd=made / folder, check=True)


@pytest.mark.parametrize("folder", ["coordinator", "sites/north"])
def test_compose_files_and_units_name_commands_that_exist(folder: str, made: Path) -> None:
    import yaml

    services = yaml.safe_load((made / folder / "compose.yaml").read_text())["services"]
    [service] = services.values()
    for file in ("torch.txt", "requirements.txt"):
        assert f"--no-deps --require-hashes -r /{file}" in service["build"]["dockerfile_inline"]
        assert (made / folder / file).read_text() == LOCK.with_name(file).read_text()
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    [unit] = (made / folder).glob("*.service")
    [start] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    for command in (service["command"], start.removeprefix("ExecStart=/usr/bin/env ")):
        words = command.split()[:3]
        assert words[0] == "fedrel" and words[1:] in (["coordinator", "start"], ["site", "start"])


def test_torch_is_pinned_too() -> None:
    (line,) = re.findall(
        r"^torch==(\S+)\+cpu \\\n    --hash=sha256:[0-9a-f]{64}$",
        LOCK.with_name("torch.txt").read_text(),
        re.M,
    )
    assert line == pinned()["torch"]


def test_the_pinned_requirements_are_those_of_constraints() -> None:
    """All that a site needs, at the tested versions, with hashes; `tests.deployment.lock` writes them."""
    found = re.findall(
        r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", LOCK.read_text(), re.M
    )
    versions = pinned()
    assert {name: version for name, version, _ in found} == {
        name: versions[name] for name in needed() - LEFT_OUT
    }
