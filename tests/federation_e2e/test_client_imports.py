"""Flower starts a process for every message: it must not load what the message does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from tests.federation_e2e.conftest import Called

HEAVY = ("torch", "transformers", "matplotlib", "plotly", "sklearn", "peft", "numba")
SITE = f"""\
import json
import sys
from pathlib import Path
from fedrel.federation.flower import client
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import Request
from fedrel.deployment.site_runner import SiteHost

def loaded():
    print(*(name for name in {HEAVY} if name in sys.modules), flush=True)

folder = Path(sys.argv[1])
run, config = "0" * 32 + "-" + "0" * 8, json.loads((folder / "config.json").read_text())
artefacts = json.loads((folder / "artefacts.json").read_text())
nothing = codec.encode_arrays({{}})
asked = Request(run, config, artefacts, 0, 0, "census")
answer = client.respond(lambda: SiteHost(folder), codec.encode_request(asked, nothing, nothing))
assert "answer" in answer, answer
loaded()
SiteHost(folder).runner(run)
loaded()
"""


@pytest.mark.slow  # `test_site_runner` asks the same of the process that passes messages on
def test_reporting_what_a_site_holds_needs_no_torch_and_training_needs_only_torch(called: Called):
    site = called.bed.site("north").path
    done = subprocess.run(
        [sys.executable, "-c", SITE, str(site)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["", "torch"]
