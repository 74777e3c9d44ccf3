"""The page of a sweep, from `sweep.json` alone."""

from __future__ import annotations

from pathlib import Path

from fedrel.api import write_report
from fedrel.config.sources import load_config
from fedrel.runs.folder import MetricsFile, write_json
from fedrel.runs.records import Reached, Sweep, Trial
from fedrel.runs.sweep import halving, sweep
from fedrel.studio.sweep_page import sweep_markdown, sweep_table
from tests.conftest import tiny


def trial(rate: float, seeds: list[float], reached: list[Reached | None] | None = None, **more: int) -> Trial:
    mean = sum(seeds) / len(seeds)
    return Trial(
        method="one",
        settings={"a.rate": rate},
        metric="f1",
        dev=mean,
        seeds=seeds,
        reached=reached or [],
        **more,
    )


def test_by_hand() -> None:
    at = [Reached(round=4, up=2000, down=1), None, Reached(round=8, up=4000, down=1)]
    found = Sweep(
        rows=[trial(0.1, [0.2, 0.3, 0.7], at), trial(0.2, [0.5, 0.5, 0.5], [None] * 3)],
        best={"one": {"a.rate": 0.2}},
    )
    table = sweep_markdown(found).split("\n\n")[0].splitlines()
    assert table[0] == (
        "| method | settings | F1 on dev | median | rounds to target | median | sent by sites until then |"
    )
    assert table[2] == (
        "| one | a.rate=0.1 | 0.400 ± 0.265 | 0.300 | 6 ± 2.8 (2 of 3) | 8 | 3.0 kB ± 1.4 kB (2 of 3) |"
    )
    assert table[3] == "| **one** | **a.rate=0.2** | **0.500 ± 0.000** | **0.500** | **—** | **—** | **—** |"


def test_one_seed_and_rungs() -> None:
    rows = [trial(0.1, [0.2], rounds=2), trial(0.2, [0.5], rounds=2), trial(0.2, [0.6], rounds=4)]
    text = sweep_markdown(Sweep(rows=rows, best={"one": {"a.rate": 0.2}}))
    assert (
        "| one | a.rate=0.2 | 2 | 0.500 |" in text
        and "| **one** | **a.rate=0.2** | **4** | **0.600** |" in text
    )
    assert "One seed" in text
    assert sweep_table(Sweep(rows=rows, best={})).row_count == 3


def test_a_sweep_over_seeds_has_a_page(tmp_path: Path) -> None:
    config = tiny(training__rounds=1, evaluation__target=0.01)
    found = sweep(config, tmp_path, {"training.learning_rate": [0.1, 0.3]}, ["fedavg"], seeds=3)
    assert [len(one.seeds) for one in found.rows] == [3, 3] == [len(one.reached) for one in found.rows]
    page = write_report(tmp_path)
    assert page.name == "sweep.md" and "± " in page.read_text(encoding="utf-8")
    drawn = (tmp_path / "sweep.svg").read_bytes()
    write_report(tmp_path)
    assert (tmp_path / "sweep.svg").read_bytes() == drawn
    write_json(tmp_path / "sweep.json", Sweep(rows=found.rows, best={}))
    assert "**" not in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_rate_that_follows_the_run_goes_its_whole_way_in_every_rung(tmp_path: Path) -> None:
    config = tiny(training__rounds=4, training__linear_decay=True, training__optimiser="sgd")
    grid = {"training.learning_rate": [0.05, 0.1, 0.2, 0.4]}
    found = halving(config, tmp_path, grid, ["fedavg"])
    assert [one.rounds for one in found.rows] == [2] * 4 + [4] * 2
    short = tmp_path / "fedavg" / "training.learning_rate=0.05" / "2-rounds"
    assert load_config(short / "config.toml").training.rounds == 2
    best = found.best["fedavg"]["training.learning_rate"]
    long = tmp_path / "fedavg" / f"training.learning_rate={best}"
    assert load_config(long / "config.toml").training.rounds == 4
    # Its first rounds are not those of the short run, whose rate fell faster.
    rounds = [MetricsFile(folder / "metrics.jsonl").rounds() for folder in (long, long / "2-rounds")]
    assert rounds[0][0].loss != rounds[1][0].loss
    again = halving(config, tmp_path, grid, ["fedavg"])  # nothing is trained twice
    assert again == found
