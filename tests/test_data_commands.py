"""`fedrel data check`, `fedrel data list` and `fedrel convert` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrel.cli.main import app
from tests.data import samples

run = CliRunner().invoke


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows = samples.CSV.splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join([rows[0], *rows[1:] * 6, "broken\n"]))
    columns = {"text": "sentence", "head": "drug", "tail": "illness", "relation": "label", "source": "ward"}
    named = "\n".join(f'{role} = "{name}"' for role, name in columns.items())
    files = "\n".join(f'{part} = ["a.csv"]' for part in ("train", "dev", "test"))
    data = (
        f'[data]\ncorpus = "files"\nformat = "csv"\nnone_label = "none"\n{files}\n[data.columns]\n{named}\n'
    )
    (tmp_path / "a.toml").write_text(data + '[partition]\nkind = "source"\n[extractor]\nmin_count = 1\n')
    return tmp_path / "a.toml"


def test_check(config: Path, tmp_path: Path) -> None:
    stopped = run(app, ["data", "check", str(config)])
    assert stopped.exit_code != 0  # the last line is broken, and the default is strict
    chosen = ["--set", "data.on_error=skip", "--set", "data.max_skipped=0.1"]
    found = run(app, ["data", "check", str(config), *chosen, "--page", str(tmp_path / "a.html")])
    assert found.exit_code == 0, found.output
    assert "out of vocabulary: 0.0%" in found.output
    assert "also among the training sentences" in " ".join(found.output.split())
    page = (tmp_path / "a.html").read_text()
    assert "How often each relation occurs in each part" in page and "cannot be read" in page
    told = json.loads(run(app, ["data", "check", str(config), *chosen, "--json"]).stdout)
    assert told["sizes"] == {"train": 2, "dev": 12, "test": 12}  # training drops what repeats
    assert told["skipped"] == {"expected … cells, as in the first line, found …": 3}


def test_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_DATA", str(tmp_path))
    listed = {one["name"]: one for one in json.loads(run(app, ["data", "list", "--json"]).stdout)}
    assert listed["chr"]["state"] == "missing" and listed["chr"]["licence"] == "CC BY 4.0"
    shown = run(app, ["data", "list"]).stdout
    assert "missing: chr/dev.pubtator" in shown and "source: http://www.nactem.ac.uk/CHR/" in shown


def test_convert(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(samples.TACRED)
    done = run(
        app, ["convert", str(tmp_path / "a.json"), str(tmp_path / "b.csv"), "--from", "tacred", "--to", "csv"]
    )
    assert done.exit_code == 0 and done.stdout == f"2 sentences in {tmp_path / 'b.csv'}\n"
    lost = ["convert", str(tmp_path / "b.csv"), str(tmp_path / "c.txt"), "--from", "csv", "--to", "semeval"]
    assert run(app, lost).exit_code != 0
    counted = run(app, [*lost, "--lossy"])
    assert "lost: the entities' types: 2" in counted.stdout
