"""docs/deployment.md and docs/protection.md: keys, methods and messages are all there, and the tutorial works."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fedrel.deployment.experiment import Shared
from fedrel.deployment.flower_programs import end_with_parent
from fedrel.deployment.policy import SitePolicy, kinds_of_message
from fedrel.methods.by_name import methods
from tests.test_docs import ROOT, blocks, perform, tables


def keys(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    found = {}
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            found |= keys(type(field.default), f"{prefix}{name}.")
        else:
            given = "none" if field.default is None else json.dumps(field.default, default=str)
            found[f"{prefix}{name}"] = "needed" if field.default is PydanticUndefined else given
    return found


@pytest.mark.parametrize(("heading", "model"), [("[shared]", Shared), ("site.toml", SitePolicy)])
def test_every_key_is_documented_with_its_default(heading, model):
    rows = tables("deployment.md")[heading]
    assert {key: default.strip("`") for key, (default, _) in rows.items()} == keys(model)
    assert all(meaning for _, meaning in rows.values())


def test_who_sees_what_is_said_of_every_method_and_message():
    page = (ROOT / "docs" / "protection.md").read_text(encoding="utf-8")
    table = page.split("## Who sees what")[1].split("\n## ")[0]
    assert [name for name in methods() if f"`{name}`" not in table] == []
    ours = {
        name: kind for name, kind in kinds_of_message().items() if kind.__module__.startswith("fedrel.")
    }  # other tests may have kinds of their own
    up = [name for name, kind in ours.items() if (kind.__doc__ or "").startswith("Up")]
    assert len(up) >= 7
    assert [name for name in up if f"`{name}`" not in table] == []


TERMINAL = re.compile(r"# terminal: (\S+)\n")


@pytest.mark.slow
def test_the_tutorial_leads_to_a_model(tmp_path):
    """Its commands as they stand, with Flower's programs; a terminal's blocks run beside the others."""
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedrel[flower]'")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    surroundings = {**os.environ, "PATH": path}
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for block in blocks(ROOT / "docs" / "deployment.md"):
            if block.mark != "sh":
                perform(block, tmp_path)
            elif terminal := TERMINAL.match(block.code):
                with (tmp_path / f"{terminal[1]}.log").open("wb") as log:
                    started[terminal[1]] = subprocess.Popen(
                        ["bash", "-ec", f"exec {block.code.splitlines()[1]}"],
                        cwd=tmp_path,
                        env=surroundings,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        preexec_fn=end_with_parent,  # noqa: PLW1509 - it only sets a signal
                    )
                if terminal[1] == "coordinator":
                    _wait_for(tmp_path / "coordinator.log", "listening on port", started["coordinator"])
            else:
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", block.code],
                    cwd=tmp_path,
                    env=surroundings,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{block.place}:\n{block.code}\n{done.stdout}{done.stderr}"
    finally:
        for process in reversed(started.values()):
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(60) for name, process in started.items()}
    assert set(codes.values()) == {130}
    lines = (tmp_path / "fed/coordinator/runs/experiment/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert all(json.loads(line)["refused"] == [] for line in lines)


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.5)
