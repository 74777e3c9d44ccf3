"""The preset for a folder a site, from the command line: no code, and an answer for each site."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrel.cli.main import app
from fedrel.runs.folder import read_run
from tests.data.test_natural_sites import write_sites

SMALL = ("training.rounds=2", "training.batch_size=8", "extractor.word_dimension=4", "extractor.filters=4")


def test_a_folder_a_site_is_compared_without_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sites(tmp_path / "sites", north=(40, 12), east=(24, 8))
    monkeypatch.setenv("FEDREL_DATA", str(tmp_path))
    settings = [part for one in (*SMALL, "engine.kind=local") for part in ("--set", one)]
    asked = [
        "compare",
        "natural/folders",
        "--methods",
        "local,fedavg",
        "--seeds",
        "2",
        *settings,
        "--out",
        "out",
    ]
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert said.exit_code == 0, said.output
    for method in ("local", "fedavg"):
        sites = read_run(tmp_path / "out" / method / "seed-2").result.sites
        assert sites is not None and sites.natural and sites.rows == {"east": 8, "north": 12}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Is it better to take part?" in page and "sites (jsonl) · K = 2 sites (natural) · C = 1" in page
    models = (tmp_path / "out" / "local" / "seed-1" / "model").iterdir()
    assert sorted(path.name for path in models) == ["east", "north"]
    assert len(list((tmp_path / "out").rglob("plotly.min.js"))) == 1
