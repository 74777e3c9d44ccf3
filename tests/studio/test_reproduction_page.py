"""The page of a reproduced table, from its JSON alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import pytest

from fedrel.config.papers import find_exhibit
from fedrel.evaluation.bootstrap import Interval
from fedrel.runs.collect import collect, value_of
from fedrel.runs.folder import read_json
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import Plan
from fedrel.runs.reproduction_record import Reproduction, Verdict
from fedrel.studio.reproduction_page import CURVES, _interval, counted, draw, page_text
from tests.conftest import REAL_DATA

RESULTS = Path(__file__).parents[2] / "results"
PAGES = pytest.mark.parametrize(
    "record", sorted(RESULTS.glob("*/reproduction.json")), ids=lambda path: path.parent.name
)


WITH_DATA = pytest.mark.skipif(REAL_DATA is None, reason="without FEDREL_DATA, other presets stand in")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the commands of pages are given: a table in a file is named by its path."""
    monkeypatch.chdir(RESULTS.parent)


def test_late_best_rounds_are_marked() -> None:
    run = {
        "seed": 1,
        "value": 0.5,
        "best_round": 10,
        "rounds": 10,
        "converged": False,
        "seconds": 1,
        "dev": [],
    }
    record = {
        "name": "a/table1", "title": "A", "about": "B", "scale": 1, "better": "more", "target": None, "seeds": 1,
        "columns": [{"name": "c", "preset": "demo", "metric": "auc"}], "rows": ["one"],
        "cells": [{"row": "one", "column": "c", "runs": [run]}], "orderings": [], "environments": [],
    }  # fmt: skip
    found = Reproduction.model_validate(record)
    assert "0.500†" in page_text(found) and "in brackets" not in page_text(found)


def test_rounds_have_one_digit_and_brackets_are_told_of_where_they_are() -> None:
    runs = [
        {
            "seed": seed,
            "value": value,
            "best_round": 1,
            "rounds": 9,
            "converged": True,
            "seconds": 1,
            "dev": [],
        }
        for seed, value in ((1, 1.0), (2, 2.0))
    ]
    record = {
        "name": "a/table8", "title": "A", "about": "B", "scale": 1, "better": "less", "target": 0.75, "seeds": 2,
        "columns": [{"name": "c", "preset": "demo", "metric": "rounds"}], "rows": ["one"],
        "cells": [{"row": "one", "column": "c", "paper": 1, "runs": runs}], "orderings": [], "environments": [],
    }  # fmt: skip
    page = page_text(Reproduction.model_validate(record))
    assert "| one | 1.5 ± 0.7 [1.0] |" in page and "in brackets the paper's number" in page


def made(name: str, **fields: Any) -> Reproduction:
    """A page of one column."""
    record = {
        "name": name, "title": "A", "about": "B", "scale": 1, "better": "more", "target": None, "seeds": 3,
        "columns": [{"name": "c", "preset": "demo", "metric": "auc"}], "rows": [], "cells": [], "orderings": [],
        "environments": [],
    }  # fmt: skip
    return Reproduction.model_validate(record | fields)


def test_names_with_a_bar_stay_in_their_cells() -> None:
    ordering = {"column": "c", "better": "a|b", "worse": "d", "paper": 1, "verdict": "not run"}
    ours = {"mean": 0.5, "low": -1.0, "high": 2.0}
    difference = {"column": "c", "row": "a|b", "other": "d", "ours": ours, "seeds": 9}
    page = page_text(made("x/table1", rows=["a|b"], orderings=[ordering], differences=[difference]))
    assert r"| a\|b |" in page
    assert r"| c | a\|b ahead of d | +1 | — | 0 | not run |" in page
    assert "| c | a\\|b \N{MINUS SIGN} d | +0.5 [-1, +2] | 9 |" in page


def cell(row: str, *values: float | None, **more: Any) -> dict[str, Any]:
    """A cell with the runs of seeds 1, 2, ..."""
    shared = {"best_round": 1, "rounds": 9, "converged": True, "seconds": 1, "dev": []}
    runs = [{**shared, "seed": seed, "value": value} for seed, value in enumerate(values, 1)]
    return {"row": row, "column": "c", "runs": runs} | more


def test_cells_with_fewer_seeds_than_the_page_say_so() -> None:
    cells = [
        cell("all", 0.1, 0.2, 0.6),
        cell("two", 0.1, 0.3, paper=0.5, diverged=[3]),
        cell("one", 0.4),
        cell("lost", diverged=[1, 2, 3]),
    ]
    page = page_text(made("x/table1", rows=["all", "two", "one", "lost"], cells=cells))
    assert "| all | 0.300 ± 0.265, median 0.200 |" in page
    assert "| two | 0.200 ± 0.141, n = 2, 1 diverged [0.500] |" in page
    assert "| one | 0.400, n = 1 |" in page and "| lost | —, 3 diverged |" in page
    assert "over seeds 1, 2 and 3 (fewer where a cell gives n), and their median; in brackets" in page


def test_cells_with_different_seeds_do_not_look_alike() -> None:
    later = cell("later", None, 0.3, 0.5)
    later["runs"] = later["runs"][1:]
    page = page_text(made("x/table1", rows=["first", "later"], cells=[cell("first", 0.1, 0.3), later]))
    assert "| first | 0.200 ± 0.141, n = 2 |" in page and "| later | 0.400 ± 0.141, n = 2 |" in page
    assert "over seeds 1, 2 and 3 (fewer where a cell gives n)." in page  # no cell has a median


def test_a_median_that_no_cell_shows_is_not_told_of() -> None:
    cells = [cell("seldom there", 4.0, None, None), cell("never there", None, None, None)]
    page = page_text(made("x/table8", rows=["seldom there", "never there"], cells=cells, target=0.7))
    assert "| seldom there | 4.0 (1 of 3) |" in page and "| never there | never |" in page
    assert "over seeds 1, 2 and 3." in page


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([1, 2, 9], "Over one seed"), ([2, 3], "Over two seeds"), ([3], "Over three or four seeds"),
     ([9, 4], "Over three or four seeds"), ([5, 9], "")],
)  # fmt: skip
def test_few_seeds_are_warned_of_where_rows_are_told_apart(seeds: list[int], said: str) -> None:
    ours, cannot = {"mean": 1, "low": 0.5, "high": 2}, {"mean": 1, "low": -1, "high": 2}
    told = [{"column": "c", "row": "a", "other": "b", "ours": ours, "seeds": one} for one in seeds]
    told.append({"column": "c", "row": "a", "other": "b", "ours": cannot, "seeds": 1})
    counted_bytes = {"mean": 1, "low": 1, "high": 1}
    told.append({"column": "bytes", "row": "a", "other": "b", "ours": counted_bytes, "seeds": 1})
    shared = {"preset": "demo"}
    columns = [{"name": "c", "metric": "auc"} | shared, {"name": "bytes", "metric": "bytes"} | shared]
    orderings = [
        {"better": "a", "worse": "b", "paper": 1, "verdict": "holds"}
        | {name: one[name] for name in ("column", "ours", "seeds")}
        for one in told
    ]
    for fields in ({"differences": told}, {"orderings": orderings}):
        page = page_text(made("x/table1", columns=columns, **fields))
        assert page.count("**Over") == bool(said) and said in page


def test_verdicts_in_words() -> None:
    verdicts: list[Verdict] = ["fails", "holds", "not run", "holds", "holds", "not run", "diverged"]
    assert counted(verdicts) == ["1 fails", "3 hold", "1 diverged", "2 have not been run"]


def kept_runs(page: Path) -> dict[tuple[int, float], KeptRun]:
    """The runs that a page or one beside it keeps, by seed and seconds, which tell them apart."""
    found = [
        read_json(KeptRun, path)
        for folder in (page / "runs", *sorted(RESULTS.glob("*/runs")))
        for path in sorted(folder.glob("*-seed-*.json"))
    ]
    return {(run.result.seed, run.result.seconds): run for run in found}


@PAGES
def test_committed_numbers_are_of_kept_runs(record: Path) -> None:
    found, kept = read_json(Reproduction, record), kept_runs(record.parent)
    _, exhibit = find_exhibit(found.name)
    for cell in found.cells:
        for run in cell.runs:
            one = kept[run.seed, run.seconds]
            assert (one.result.rounds, one.result.best_round) == (run.rounds, run.best_round)
            assert value_of(one, exhibit, found.column(cell.column)) == run.value


def made_anew(record: Reproduction, folder: Path, runs: Path) -> Plan:
    """The plan of a page's command, with the facts of today."""
    return Plan(record.name, folder, runs, record.seeds, record.only, searched=record.searched)


@WITH_DATA
@PAGES
def test_a_command_with_the_facts_of_today_finds_all_runs_of_a_page(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDREL_DATA", str(REAL_DATA))
    found = read_json(Reproduction, record)
    plan = made_anew(found, record.parent, tmp_path)
    runs = {(job.row, job.column, job.seed) for job in plan.jobs() if plan.finished(job)}
    assert runs == {(cell.row, cell.column, run.seed) for cell in found.cells for run in cell.runs}
    chosen = plan.searches.chosen()
    assert all(
        chosen[plan.searches.cells(cell.row, found.column(cell.column))].settings == cell.settings
        for cell in found.cells
        if cell.settings
    )


def test_equal_means_differ_by_nothing() -> None:
    assert _interval(Interval(mean=-1.1e-16, low=-0.00433, high=0.00577), 100) == "+0 [-0.433, +0.577]"


def test_what_is_written_by_hand_is_a_paragraph_at_the_top_and_notes_at_the_end() -> None:
    found = read_json(Reproduction, next(RESULTS.glob("*/reproduction.json")))
    page = page_text(found, "**Read this.**\n\nA note.\n\nAnother.\n")
    assert page.index(found.title) < page.index("**Read this.**") < page.index(f"- **{found.asked[0].name}**")
    assert page.index("## Curves") < page.index("## Notes\n\nA note.\n\nAnother.\n\n## How")
    assert "## Notes" not in page_text(found, "**Read this.**\n")


@PAGES
def test_committed_pages_come_from_their_json(record: Path) -> None:
    reading = record.parent / "reading.md"
    said = reading.read_text(encoding="utf-8") if reading.exists() else ""
    page = (record.parent / "README.md").read_text(encoding="utf-8")
    assert page == page_text(read_json(Reproduction, record), said)
    assert not said.partition("\n\n")[0].rstrip().endswith(":")  # what follows stands elsewhere


@PAGES
def test_committed_curves_come_from_their_json(record: Path, tmp_path: Path) -> None:
    committed = (record.parent / CURVES).read_text(encoding="utf-8")
    if f"Matplotlib v{matplotlib.__version__}," not in committed:
        pytest.skip("drawn by another version of matplotlib")
    draw(read_json(Reproduction, record), tmp_path / CURVES)
    assert (tmp_path / CURVES).read_text(encoding="utf-8") == committed


@pytest.mark.slow
@WITH_DATA
@PAGES
def test_committed_records_come_from_kept_runs(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All numbers, intervals and verdicts of a page, from its runs' answers on the test set."""
    monkeypatch.setenv("FEDREL_DATA", str(REAL_DATA))
    found = read_json(Reproduction, record)
    assert collect(made_anew(found, record.parent, tmp_path)) == found
