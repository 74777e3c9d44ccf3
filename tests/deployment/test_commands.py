"""The commands around a federation, as far as they go without Flower's programs."""

from __future__ import annotations

import json
import re
import socket

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

from fedrel.cli.main import app
from fedrel.deployment import flower_programs
from fedrel.deployment.audit import append, check, describe
from fedrel.deployment.supernode import check_coordinator, check_ready, trusted
from fedrel.errors import UserError


def fedrel(*arguments: object) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, UserError):
        raise done.exception
    return done.exit_code, done.output


def test_publish_and_prepare(federation):
    code, output = fedrel(
        "coordinator", "publish", federation.write(seed=9), "--folder", federation.coordinator.path
    )
    assert code == 0
    manifest = json.loads((federation.coordinator.artefacts / "manifest.json").read_text())
    for name, about in manifest["artefacts"].items():
        assert name in output
        assert all(digest in output for digest in about["files"].values())
    with pytest.raises(UserError, match=r"was published"):
        fedrel("federation", "run", federation.write(), "--folder", federation.coordinator.path)


def test_a_site_lists_and_checks_what_was_published(federation):
    folder = federation.site("south").path
    code, output = fedrel("site", "artefacts", folder)
    assert code == 0 and "knowledge_base.tsv" in output
    federation.publish(seed=9)
    with pytest.raises(UserError, match=r"prepared with another config(?s:.*)site prepare"):
        fedrel("site", "artefacts", folder)
    code, output = fedrel("site", "prepare", folder)
    assert code == 0 and re.search(r"\d+ to train on", output)
    assert fedrel("site", "artefacts", folder)[0] == 0


def test_a_site_that_would_refuse_everything_does_not_start(federation):
    site = federation.site("south")
    federation.policy("south", methods=[])
    with pytest.raises(UserError, match=r"allow.methods does not name 'lazy-mil'"):
        check_ready(site)
    federation.policy("south")
    with pytest.raises(UserError, match=r"site.key: no such file"):
        check_ready(site)
    for name in ("site.key", "runtime.key", "triple.key"):
        (site.path / name).write_bytes(b"secret")
        (site.path / name).chmod(0o600)
    check_ready(site)
    append(site.audit, describe("run", 1, "train", "Update", {}))
    record = site.audit.read_bytes()
    site.audit.write_bytes(record.replace(b'"round":1', b'"round":2'))
    with pytest.raises(UserError, match=r"audit.jsonl: line 1 was changed"):
        check_ready(site)
    site.audit.write_bytes(record)
    (site.path / "triple.key").chmod(0o640)
    with pytest.raises(UserError, match=r"can be read by others(?s:.*)chmod 600"):
        check_ready(site)
    federation.publish(seed=9)
    with pytest.raises(UserError, match=r"prepared with another config"):
        check_ready(site)


def test_the_record_is_shown_and_checked(tmp_path):
    path = tmp_path / "audit.jsonl"
    update = {
        "weights/filters": np.zeros((2, 3), np.float32),
        "weights/bias": np.zeros(2, np.float32),
        "examples": np.asarray(30, np.int64),
    }
    append(path, describe("run", 1, "train", "Update", update))
    claims = {"digest": np.zeros((5, 32), np.uint8)}
    append(path, describe("run", 2, "claim_keyed", "KeyedClaims", claims))
    refusal = {"why": np.asarray(13, np.int64)}
    append(path, describe("run", 3, "train", "Refusal", refusal, "at most 2 rounds"))
    code, output = fedrel("site", "audit", tmp_path)
    assert code == 0
    assert "weights: 2 arrays of 8 numbers (float32)" in output
    assert "examples: one int64" in output
    digest = check(path).lines[1].entry.digest
    assert f"KeyedClaims (SHA-256 {digest[:8]})" in output and "digest: 5 by 32 uint8" in output
    assert "at most 2 rounds" in output
    assert "1 KeyedClaims (160 B), 1 Refusal (8 B), 1 Update (40 B)" in output
    chain = check(path).chain
    assert chain in output
    assert fedrel("site", "audit", path, "--seen", chain)[0] == 0
    code, output = fedrel("site", "audit", path, "--seen", "0" * 64)
    assert code == 1 and "was replaced" in output


def test_the_old_name_of_site_audit_still_works(tmp_path):
    append(tmp_path / "audit.jsonl", describe("run", 1, "train", "Update", {}))
    assert fedrel("audit", tmp_path) == fedrel("site", "audit", tmp_path)
    assert "audit" not in fedrel("--help")[1]


def test_nothing_of_the_record_is_cut_off_in_a_narrow_terminal(tmp_path):
    update = {f"weights/{name}": np.zeros((1000, 300), np.float32) for name in "abc"}
    append(tmp_path / "audit.jsonl", describe("run", 12_345, "train", "ControlledUpdate", update))
    output = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["site", "audit", str(tmp_path)]).output
    assert "…" not in output and "3,600,000" in output and "12345" in output
    assert max(map(len, output.splitlines())) <= 80


def test_what_a_record_quotes_is_shown_as_it_is(tmp_path):
    note = "asked with [/x] [conceal]hidden[/conceal] \x1b[2Jgone"
    append(tmp_path / "audit.jsonl", describe("run", 1, "train", "Refusal", {}, note))
    code, output = fedrel("site", "audit", tmp_path)
    shown = "".join(output.split())
    assert code == 0 and "[/x][conceal]hidden[/conceal]" in shown
    assert "\x1b" not in output and "gone" in shown


def test_a_file_that_is_not_a_record_is_reported_as_broken(tmp_path):
    with pytest.raises(UserError, match=r"neither a record nor site.toml"):
        fedrel("site", "audit", tmp_path)
    (tmp_path / "notes.toml").write_text("[federation]\nname = 1\n")
    code, output = fedrel("site", "audit", tmp_path / "notes.toml")
    assert code == 1 and "BROKEN: line 1" in output


def test_a_broken_record_is_reported_with_its_line_and_exit_code_1(tmp_path):
    path = tmp_path / "audit.jsonl"
    for round_ in range(3):
        append(path, describe("run", round_, "train", "Update", {}))
    path.write_bytes(path.read_bytes().replace(b'"round":1', b'"round":7'))
    code, output = fedrel("site", "audit", tmp_path)
    assert code == 1 and "BROKEN: line 2 was changed" in output


def test_an_incomplete_line_is_reported_and_does_not_break_the_record(tmp_path):
    path = tmp_path / "audit.jsonl"
    append(path, describe("run", 1, "train", "Update", {}))
    with path.open("ab") as file:
        file.write(b'{"chain":"0')
    code, output = fedrel("site", "audit", tmp_path)
    assert code == 0 and "line 2 is incomplete" in output


def test_a_missing_or_wrong_folder_is_an_error(federation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    with pytest.raises(UserError, match=r"no such folder"):
        fedrel("site", "audit", folder / "nowhere")
    with pytest.raises(UserError, match=r"not a site's folder(?s:.*)federation init"):
        fedrel("site", "prepare", folder)
    for command in (
        ("federation", "status", folder),
        ("federation", "run", federation.write(), "--folder", folder),
        ("coordinator", "publish", federation.write(), "--folder", folder),
        ("coordinator", "start", folder),
    ):
        with pytest.raises(UserError, match=r"not a coordinator's folder(?s:.*)federation init"):
            fedrel(*command)
    assert not any(folder.iterdir())


def test_damaged_files_are_errors_that_name_the_file(federation):
    site = federation.site("south").path
    (site / "place.json").write_text("{}")
    with pytest.raises(UserError, match=r"place.json: lacks 'name'(?s:.*)federation init"):
        fedrel("site", "start", site)
    site = federation.site("west").path
    (site / "config.json").write_text('{"seed": "x"}')
    with pytest.raises(UserError, match=r"config.json: is not a config(?s:.*)site prepare"):
        fedrel("site", "start", site)
    federation.policy("north", may_leave=["Update"], rounds=0)
    with pytest.raises(UserError, match=r"does not name 'Holdings'.*allow.rounds is 0"):
        fedrel("site", "start", federation.site("north").path)
    federation.policy("north")
    policy = federation.site("north").path / "site.toml"
    policy.write_text(policy.read_text().replace("text/*.txt", "**.txt"))
    with pytest.raises(UserError, match=r"site.toml: data.files: '\*\*.txt' is not a pattern"):
        fedrel("site", "prepare", federation.site("north").path)
    run = federation.coordinator.runs / "one"
    run.mkdir(parents=True)
    (run / "federation.json").write_text("{")
    with pytest.raises(UserError, match=r"federation.json: cannot be read"):
        fedrel("federation", "status", federation.coordinator.path)


def test_the_status_as_json(federation):
    code, output = fedrel("federation", "status", federation.coordinator.path, "--json")
    found = json.loads(output)
    assert (code, found["run"], found["round"]) == (0, None, 0)
    assert [site["name"] for site in found["sites"]] == federation.coordinator.federation.sites


def test_a_run_needs_a_coordinator_that_listens(federation):
    table = federation.coordinator.federation.model_dump() | {"port": 1}
    (federation.coordinator.path / "federation.toml").write_text(tomli_w.dumps(table))
    with pytest.raises(
        UserError, match=r"no coordinator listens on port 1(?s:.*)`fedrel coordinator start` first"
    ):
        fedrel("federation", "run", federation.write(), "--folder", federation.coordinator.path)
    assert not federation.coordinator.runs.exists()


@pytest.mark.parametrize("content", [None, b"not a certificate"])
def test_an_authority_that_cannot_be_read_is_named(content, federation):
    for folder in (federation.coordinator.path, federation.site("south").path):
        if content is not None:
            (folder / "ca.crt").write_bytes(content)
        with pytest.raises(UserError, match=r"ca.crt: is not a certificate(?s:.*)federation init"):
            trusted(folder / "ca.crt")
    with pytest.raises(UserError, match=r"ca.crt: is not a certificate"):
        fedrel("coordinator", "start", federation.coordinator.path)
    with pytest.raises(UserError, match=r"ca.crt: is not a certificate"):
        check_coordinator(federation.site("south"))


def test_a_taken_port_and_a_readable_key_stop_the_coordinator(tmp_path, monkeypatch):
    pytest.importorskip("cryptography", reason="comes with Flower: pip install 'fedrel[flower]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert (
            fedrel(
                "federation",
                "init",
                tmp_path,
                "--sites",
                "a",
                "--host",
                "localhost",
                "--port",
                taken.getsockname()[1],
            )[0]
            == 0
        )
        monkeypatch.setattr(flower_programs, "GRACE", 0.1)
        with pytest.raises(UserError, match=r"another program listens on port(?s:.*)run already"):
            fedrel("coordinator", "start", tmp_path / "coordinator")
        (tmp_path / "coordinator" / "server.key").chmod(0o644)
        with pytest.raises(UserError, match=r"server.key: can be read by others(?s:.*)chmod 600"):
            fedrel("coordinator", "start", tmp_path / "coordinator")
