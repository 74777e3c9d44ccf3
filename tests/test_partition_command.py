"""`fedrel partition` on skewed partitions: the distances, the empty sites, and refusals with exit code 2."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedrel.cli.main import main
from fedrel.cli.progress import about_empty
from fedrel.data.load import dataset
from fedrel.data.partition import Partition, divide, grouped
from fedrel.runs.train import run
from tests.conftest import tiny

CONFIG = """
[data]
corpus = "world"
sentences = 1000
relations = 5
mean_length = 14

[partition]
kind = "{kind}"
sites = 8
alpha = {alpha}
"""


def fedrel(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *settings: str,
    kind: str = "dirichlet",
    alpha: float = 0.5,
    more: Sequence[str] = (),
) -> tuple[int, str, str]:
    config = folder / "config.toml"
    config.write_text(CONFIG.format(kind=kind, alpha=alpha))
    words = ["partition", str(config), "--plot", str(folder / "sites.png"), *more]
    for setting in settings:
        words += ["--set", setting]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["fedrel", *words])
        patch.setenv("COLUMNS", "120")
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("dirichlet", 0.3, 2), ("shards", 0.3, 2), ("quantity", 0, 0.6)]
)
def test_the_table_shows_each_sites_distance_and_the_mean(
    kind: str, low: float, high: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = fedrel(tmp_path, capsys, kind=kind)
    assert code == 0
    assert out.count("site-") == 8
    mean = re.search(r"mean\D+([\d.,]+)\D+([\d.]+)\D+([\d.]+)", out)
    assert mean is not None
    assert low < float(mean[3]) < high
    assert (tmp_path / "sites.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = fedrel(tmp_path, capsys, alpha=1e-4, more=["--json"])
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [site["name"] for site in found["sites"]] == [f"site-{n}" for n in range(8)]
    assert sum(site["sentences"] for site in found["sites"]) == 900
    for site in found["sites"]:
        assert len(site["counts"]) == len(found["relations"]) == 5
        assert sum(site["counts"]) == site["sentences"]
        assert (site["distance"] is None) == (site["sentences"] == 0)


def test_empty_sites_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = fedrel(tmp_path, capsys, alpha=1e-4)
    assert code == 0
    found = re.search(r"(\d) of 8 sites have no data and are never drawn: (.*?)plot:", out, re.DOTALL)
    assert found is not None
    named = re.findall(r"site-\d", found[2])
    assert len(named) == int(found[1]) >= 3
    for name in named:
        assert re.search(rf"{name}\D+0\D+0\D+—", out)


def test_many_empty_sites_are_counted_and_some_named() -> None:
    parts = grouped(np.arange(2), np.array([0, 0]), [f"s{n}" for n in range(31)])
    assert about_empty(parts).startswith("30 of 31 sites have no data and are never drawn: s1, s2, ")
    assert about_empty(parts).endswith("s20 and 10 more")
    assert about_empty(Partition(np.arange(2), np.array([0, 2]), ("a",))) == ""


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("partition.alpha=0", "partition.alpha: Input should be greater than 0"),
        ("partition.alpha=-0.5", "partition.alpha: Input should be greater than 0"),
        ("partition.alpha=inf", "partition.alpha: Input should be a finite number"),
        ("partition.sites=5000", "over 5000 sites"),
        ("partition.min_size=500", "cannot give each of 8 sites at least 500"),
        ("partition.kind=dirichlett", "no partition is called 'dirichlett'\nhint: did you mean 'dirichlet'?"),
    ],
)
def test_refusals(setting: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = fedrel(tmp_path, capsys, setting)
    assert code == 2
    assert problem in err
    assert "Traceback" not in err


def test_a_run_never_draws_an_empty_site(tmp_path: Path) -> None:
    """With all sites active, those without data are left out, round after round."""
    config = tiny(
        method="fedavg",
        partition__kind="dirichlet",
        partition__alpha=1e-4,
        training__fraction=1.0,
        training__rounds=2,
    )
    data = dataset(config.data)
    parts = divide(config.partition, data.corpus, data.train, config.seed)
    with_data = np.flatnonzero(parts.sizes).tolist()
    assert len(with_data) < parts.sites
    run(config, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["active"] for line in lines] == [with_data, with_data]


@pytest.mark.parametrize(
    "command", [["run"], ["compare", "--methods", "fedavg,fedrs"]], ids=lambda words: words[0]
)
def test_it_is_said_once_which_sites_are_empty(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where output is no terminal, too; and the display of the rounds does not go over it."""
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(kind="dirichlet", alpha=1e-4) + "[training]\nrounds = 1\n")
    words = ["fedrel", *command, str(config), "--set", "engine.kind=local", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = re.findall(r"\d of 8 sites have no data and are never drawn: site-\d", capsys.readouterr().out)
    assert len(said) == 1
