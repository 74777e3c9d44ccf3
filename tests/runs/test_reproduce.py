"""`fedrel reproduce`: plans, runs, budgets, verdicts and pages, on a made-up paper of a few seconds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedrel.config.papers import experiment, find_exhibit, missing_files, papers
from fedrel.config.sources import presets
from fedrel.errors import UserError
from fedrel.files import locked
from fedrel.runs.exhibits import _Begun, listed_exhibits
from fedrel.runs.folder import read_json
from fedrel.runs.reproduce import Job, Plan, page_folder, reproduce
from fedrel.runs.reproduction_record import Reproduction
from fedrel.runs.sweep import halving, halving_rounds
from fedrel.runs.train import Watcher
from fedrel.studio.reproduction_page import page_text, write_page
from tests.conftest import tiny

RESULTS = Path(__file__).parents[2] / "results"

PAPER = """
title = "Nobody 2020, A made-up paper"

[exhibits.table1]
about = "AUC on the world"
metric = "auc"
scale = 100

[exhibits.table1.search]
"training.learning_rate" = [1e-6, 0.3]

[exhibits.table1.rows]
one = {}
fedavg = {}
"fedavg, still" = { method = "fedavg", set = { "training.learning_rate" = 1e-9 } }

[[exhibits.table1.columns]]
name = "few"
preset = "CONFIG"
set = { "training.fraction" = 0.5 }
paper = { one = 70.0, fedavg = 60.0 }

[[exhibits.table1.columns]]
name = "lost"
preset = "LOST"
paper = { one = 1.0 }

[exhibits.table2]
about = "Rounds to an AUC of .01"
metric = "rounds"
target = 0.01
target_metric = "auc"
better = "less"

[exhibits.table2.rows]
one = {}
fedavg = {}

[[exhibits.table2.columns]]
name = "few"
preset = "LOST"
instead = "CONFIG"
set = { "training.fraction" = 0.5, "evaluation.target_on" = "test" }
paper = { one = 3, fedavg = 5 }
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    config, lost, file = tmp_path / "config.toml", tmp_path / "lost.toml", tmp_path / "paper.toml"
    config.write_text(tiny(training__rounds=4).to_toml())
    lost.write_text('[data]\ncorpus = "files"\ntrain = ["no.jsonl"]\ntest = ["no.jsonl"]\n')
    file.write_text(PAPER.replace("CONFIG", str(config)).replace("LOST", str(lost)))
    return file


def stop_after(rounds: int) -> Callable[..., Watcher]:
    """A watch that stops as a kill would: with an exception between two rounds."""
    left = [rounds]

    def round_done(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return lambda _, __: Watcher(round_done=round_done)


def test_a_table_is_run_searched_and_put_beside_the_paper(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce(f"{paper}/table1", out, runs, seeds=2, watch=stop_after(6))
    found = reproduce(f"{paper}/table1", out, runs, seeds=2)
    cells = {(cell.row, cell.column): cell for cell in found.cells}
    assert [len(cells[row, "few"].runs) for row in found.rows] == [2, 2, 2]
    assert cells["one", "lost"].runs == []
    assert cells["one", "few"].settings == {"training.learning_rate": 0.3}  # the other learns nothing
    tried = [(trial.settings["training.learning_rate"], trial.rounds) for trial in cells["one", "few"].trials]
    assert tried == [(1e-6, 4), (0.3, 4)]
    (ordering,) = found.orderings[:1]
    assert (ordering.better, ordering.worse, ordering.paper) == ("one", "fedavg", 10.0)
    assert ordering.ours is not None
    one, fedavg = ([run.value for run in cells[row, "few"].runs] for row in ("one", "fedavg"))
    assert ordering.ours.mean == pytest.approx(sum(one) / 2 - sum(fedavg) / 2)
    assert [note.missing != "" for note in found.columns] == [False, True]

    trained = {path: path.stat().st_mtime_ns for path in runs.rglob("round-*.safetensors")}
    again = reproduce(f"{paper}/table1", out, runs, seeds=2)
    assert again == found
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("round-*.safetensors")} == trained

    shutil.rmtree(runs)  # as in another clone, which has the page and no runs
    assert reproduce(f"{paper}/table1", out, runs, seeds=2) == found
    assert not runs.exists()
    longer = paper.parent / "config.toml"
    longer.write_text(longer.read_text().replace("rounds = 4", "rounds = 5"))
    stopped = reproduce(f"{paper}/table1", out, runs, seeds=2, budget=0)
    assert not any(cell.runs for cell in stopped.cells)  # what was kept is not long enough
    longer.write_text(longer.read_text().replace("rounds = 5", "rounds = 4"))
    assert reproduce(f"{paper}/table1", out, runs, seeds=2, budget=0) == found

    page = write_page(out).read_text()
    assert "[70.0]" in page
    best = cells["one", "few"].trials[1]
    assert f"; learning_rate 0.3: {best.dev:.3f} by round 4\n" in page
    assert "was not run: no such file" in page
    assert f"{tmp_path}/no.jsonl" not in page  # a path of this machine
    assert page == page_text(read_json(Reproduction, out / "reproduction.json"))
    assert (out / "curves.svg").exists()


def test_a_target_on_test_a_stand_in_and_a_budget(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    nothing = reproduce(f"{paper}/table2", out, runs, seeds=1, budget=0)
    assert not any(cell.runs for cell in nothing.cells)
    assert {(one.verdict, one.seeds) for one in nothing.orderings} == {("not run", 0)}
    found = reproduce(f"{paper}/table2", out, runs, seeds=1)
    assert [note.instead for note in found.columns] == [True]
    (cell,) = (one for one in found.cells if one.row == "one")
    lines = [json.loads(line) for line in next(runs.glob("*-one-*/metrics.jsonl")).open()]
    first = next((one["round"] for one in lines if one["test"]["auc"] >= 0.01), None)
    assert cell.runs[0].value == first
    assert "not the paper's corpus" in write_page(out).read_text()


def test_one_row_is_trained_and_the_others_are_shown_as_they_were(paper: Path, tmp_path: Path) -> None:
    out, runs, counts = tmp_path / "out", tmp_path / "runs", []
    for rows in (["fedavg"], ["one"], []):
        found = reproduce(f"{paper}/table1", out, runs, seeds=1, rows=rows)
        counts.append([len(cell.runs) for cell in found.cells if cell.column == "few"])
    assert counts == [[0, 1, 0], [1, 1, 0], [1, 1, 1]]
    with pytest.raises(UserError, match="has no row 'oen'"):
        reproduce(f"{paper}/table1", out, runs, rows=["oen"])


def test_a_difference_is_of_the_seeds_that_both_rows_have(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    reproduce(f"{paper}/table1", out, runs, seeds=1, search=False, rows=["fedavg"])
    found = reproduce(f"{paper}/table1", out, runs, seeds=3, search=False, rows=["one"])
    one, fedavg = ([run.value or 0 for run in cell.runs] for cell in found.cells[:2])
    assert (len(one), len(fedavg)) == (3, 1)
    (ordering,) = found.orderings[:1]
    assert ordering.ours is not None
    assert ordering.ours.mean == pytest.approx(one[0] - fedavg[0])


def test_what_another_process_is_at_is_passed_over(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"

    def counts(table: str) -> list[int]:
        found = reproduce(f"{paper}/{table}", out / table, runs, seeds=1)
        return [len(cell.runs) for cell in found.cells if cell.column == "few"]

    plan = Plan(f"{paper}/table2", out / "table2", runs, 1)
    first, _ = (job.folder for job in plan.jobs())
    with locked(first):
        assert counts("table2") == [0, 1]
    assert counts("table2") == [1, 1]

    searched = {one.row: one.folder for one, _ in Plan(f"{paper}/table1", out, runs, 1).searches()}
    with locked(searched["fedavg"]):  # without its settings, the row is not trained either
        assert counts("table1") == [1, 0, 1]
    assert counts("table1") == [1, 1, 1]


def test_what_another_process_has_left_is_taken_up(paper: Path, tmp_path: Path) -> None:
    runs, stack = tmp_path / "runs", ExitStack()
    first, _ = (job.folder for job in Plan(f"{paper}/table2", tmp_path / "out", runs, 1).jobs())
    stack.enter_context(locked(first))

    def watch(_: str, __: object) -> Watcher:
        return Watcher(finished=lambda _: stack.close())  # the other one dies while the second run is trained

    found = reproduce(f"{paper}/table2", tmp_path / "out", runs, seeds=1, watch=watch)
    assert [len(cell.runs) for cell in found.cells] == [1, 1]


def test_the_result_of_an_earlier_end_does_not_count(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().replace("scale = 100\n", "scale = 100\nfinalists = 1\n", 1)
    paper.write_text(text)
    whole = reproduce(
        f"{paper}/table1", tmp_path / "elsewhere" / "out", tmp_path / "runs", seeds=1, rows=["one"]
    )
    # Four rounds of one are two for each rate, then two more for the better one: stopped before these are tested.
    with pytest.raises(KeyboardInterrupt):
        reproduce(
            f"{paper}/table1", tmp_path / "o", tmp_path / "r", seeds=1, rows=["one"], watch=stop_after(6)
        )
    again = reproduce(f"{paper}/table1", tmp_path / "o", tmp_path / "r", seeds=1, rows=["one"])
    assert [(run.rounds, run.value) for run in again.cells[0].runs] == [
        (run.rounds, run.value) for run in whole.cells[0].runs
    ]
    assert again.cells[0].runs[0].rounds == 4


def test_a_point_of_the_grid_that_diverges_loses(paper: Path, tmp_path: Path) -> None:
    paper.write_text(paper.read_text().replace("[1e-6, 0.3]", "[1e30, 0.3]"))
    found = reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", seeds=1, rows=["fedavg"])
    assert found.cells[1].settings == {"training.learning_rate": 0.3}
    assert len(found.cells[1].runs) == 1


def test_a_seed_that_diverges_is_said_so_and_the_others_go_on(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    paper.write_text(
        paper.read_text().replace('"training.learning_rate" = 1e-9', '"training.learning_rate" = 1e30')
    )
    for attempt in range(3):  # the second time, what diverged is not tried again; nor in another clone
        if attempt == 2:
            shutil.rmtree(runs)
        trained: list[str] = []

        def watch(name: str, _: object, trained: list[str] = trained) -> Watcher:
            trained.append(name)
            return Watcher()

        found = reproduce(f"{paper}/table1", out, runs, seeds=2, search=False, watch=watch)
        shown = {cell.row: (len(cell.runs), cell.diverged) for cell in found.cells if cell.column == "few"}
        assert shown == {"one": (2, []), "fedavg": (2, []), "fedavg, still": (0, [1, 2])}
    assert trained == []
    assert "| fedavg, still | —, 2 diverged |" in write_page(out).read_text()


def test_rows_and_tables_of_one_method_with_other_grids_keep_their_searches_apart(
    paper: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = paper.read_text().replace(
        "one = {}\n", 'one = { search = { "training.batch_size" = [4, 8] } }\n', 1
    )
    text = text.replace("fedavg = {}\n", '"one, as it is" = { method = "one" }\nfedavg = {}\n', 1)
    paper.write_text(text)
    out, runs = tmp_path / "out", tmp_path / "runs"
    found = reproduce(f"{paper}/table1", out, runs, seeds=1, rows=["one", "one, as it is"])
    first, second = (cell for cell in found.cells if cell.row.startswith("one") and cell.column == "few")
    assert (len(first.runs), len(second.runs)) == (1, 1)
    assert (len(first.settings), len(second.settings)) == (2, 1)
    assert len(list(runs.glob("search/*/search-*.json"))) == 2
    assert not caplog.records
    paper.write_text(text.replace("[1e-6, 0.3]", "[0.3, 0.2]"))
    reproduce(f"{paper}/table1", out, runs, seeds=1, rows=["one"], budget=0)
    said = [record.getMessage() for record in caplog.records if "another search" in record.getMessage()]
    assert [one.partition(":")[0] for one in said] == ["one", "one, as it is"]
    paper.write_text(text.replace("[1e-6, 0.3]", "[]"))
    with pytest.raises(UserError, match="at least 1 item"):
        find_exhibit(f"{paper}/table1")


def test_each_preset_has_a_search_of_its_own(paper: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(tiny(training__rounds=4, partition__sites=2).to_toml())
    head, lost, _ = paper.read_text().partition('[[exhibits.table1.columns]]\nname = "lost"')
    column = '\n[[exhibits.table1.columns]]\nname = "{}"\npreset = "{}"\npaper = {{ one = 1.0 }}\n'
    paper.write_text(head + column.format("others", other) + column.format("all", tmp_path / "config.toml"))
    assert lost
    out, runs = tmp_path / "out", tmp_path / "runs"
    plan = Plan(f"{paper}/table1", out, runs, 1, ["others", "all"])
    presets = {
        (one.row, one.config.partition.sites, one.config.training.fraction) for one, _ in plan.searches()
    }
    half, whole = 0.5, tiny().training.fraction
    assert presets == {
        ("one", tiny().partition.sites, half),
        ("one", 2, whole),
        ("fedavg, still", tiny().partition.sites, half),
        ("fedavg, still", 2, whole),
    }
    found = reproduce(f"{paper}/table1", out, runs, seeds=1, rows=["one"])
    tried = {cell.column: [one.dev for one in cell.trials] for cell in found.cells if cell.row == "one"}
    assert tried["few"] == tried["all"] != tried["others"]
    assert [len(cell.runs) for cell in found.cells if cell.row == "one"] == [1, 1, 1]
    page = write_page(out).read_text()
    assert (
        f"- one with `{other}`: `training.learning_rate = 0.3`, chosen on dev from 2 combinations\n" in page
    )


def test_a_row_searches_its_own_options_together_with_the_tables_grid(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().replace("one = {}\nfedavg = {}", "one = {}\nfedprox = { search = { OWN } }", 1)
    text = text.replace("fedavg = 60.0", "fedprox = 60.0", 1)
    out, runs = tmp_path / "out", tmp_path / "runs"

    def chosen(own: str, runs: Path) -> list[dict[str, float]]:
        paper.write_text(text.replace("OWN", own))
        found = reproduce(f"{paper}/table1", out, runs, seeds=1, rows=["one", "fedprox"])
        return [cell.settings for cell in found.cells[:2]]

    rate, mu = "training.learning_rate", "methods.fedprox.mu"
    assert chosen(f'"{mu}" = [3.0]', runs) == [{rate: 0.3}, {rate: 0.3, mu: 3.0}]
    # Another grid: neither what the page says nor what the folder of runs has is of it, though in it.
    assert chosen(f'"{mu}" = [3.0, 0.01]', runs) == [{rate: 0.3}, {rate: 0.3, mu: 0.01}]
    trials = max(
        (json.loads(path.read_text())["rows"] for path in runs.glob("search/*-fedprox-*/search-*.json")),
        key=len,
    )
    tried = {(one["settings"][rate], one["settings"][mu]) for one in trials}
    assert tried == {(1e-6, 3.0), (1e-6, 0.01), (0.3, 3.0), (0.3, 0.01)}
    assert "chosen on dev from 4 combinations" in write_page(out).read_text()
    assert chosen(f'"{mu}" = [0.01, 0.0]', tmp_path / "others") == [{rate: 0.3}, {rate: 0.3, mu: 0.0}]
    # A row's own values of a setting count, not the table's; a search that is in the page is not made again.
    own = f'"{rate}" = [0.2], "{mu}" = [0.02]'
    assert chosen(own, runs) == chosen(own, tmp_path / "nothing") == [{rate: 0.3}, {rate: 0.2, mu: 0.02}]
    assert not (tmp_path / "nothing").exists()


def test_an_exhibit_of_the_same_runs_trains_none(paper: Path, tmp_path: Path) -> None:
    same = """
[exhibits.table7]
about = "Its maximal F1"
metric = "max_f1"
runs_of = "table1"
rows = { one = {}, fedavg = {} }

[[exhibits.table7.columns]]
name = "few"
preset = "CONFIG"
set = { "training.fraction" = 0.5 }
""".replace("CONFIG", str(tmp_path / "config.toml"))
    text = paper.read_text()
    paper.write_text(text + same)
    pages, runs = tmp_path / "pages", tmp_path / "runs"
    first = reproduce(f"{paper}/table1", pages / page_folder(f"{paper}/table1"), runs, seeds=1)
    shutil.rmtree(runs)  # as in another clone
    found = reproduce(f"{paper}/table7", pages / "table7", runs, seeds=1)
    assert not runs.exists()
    assert [cell.settings for cell in found.cells] == [{"training.learning_rate": 0.3}] * 2
    assert [cell.runs[0].best_round for cell in found.cells] == [
        cell.runs[0].best_round for cell in first.cells[:2]
    ]
    assert not (pages / "table7" / "runs").exists()  # kept once, by the first page
    for wrong in ('runs_of = "tabel1"', 'runs_of = "table7"', 'runs_of = "table1"\nsearch = { seed = [1] }'):
        paper.write_text(text + same.replace('runs_of = "table1"', wrong))
        with pytest.raises(UserError, match="table7: `runs_of` names another exhibit"):
            find_exhibit(f"{paper}/table7")
    paper.write_text(text + same.replace("fedavg = {}", 'fedavg = { method = "fedprox" }'))
    with pytest.raises(UserError, match=r"table1 has no such rows as \['fedavg'\]"):
        find_exhibit(f"{paper}/table7")


def test_the_list_estimates_what_is_left_from_trained_rounds(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrel.config.papers.papers_folder", lambda: paper.parent / "papers")
    (paper.parent / "papers").mkdir()
    paper.rename(paper.parent / "papers" / "made_up.toml")
    monkeypatch.setattr("fedrel.config.papers.papers", papers.__wrapped__)
    monkeypatch.setattr("fedrel.runs.exhibits.papers", papers.__wrapped__)
    pages, runs = tmp_path / "pages", tmp_path / "runs"
    before = {one.name: one for one in listed_exhibits(pages, runs, 2)}
    assert [(one.data, one.done, one.runs) for one in before.values()] == [("some", 0, 6), ("in part", 0, 4)]
    assert {one.seconds_left for one in before.values()} == {None}
    assert before["made_up/table1"].missing == [f"no such file: {tmp_path.name}/no.jsonl"]  # none published

    with pytest.raises(KeyboardInterrupt):
        reproduce("made_up/table2", pages / "made_up-table2", runs, seeds=2, watch=stop_after(1))
    (folder,) = runs.iterdir()
    (line,) = (folder / "metrics.jsonl").open()
    seconds = json.loads(line)["seconds"]
    after = {one.name: one.seconds_left for one in listed_exhibits(pages, runs, 2)}
    assert after["made_up/table2"] == pytest.approx(
        seconds * (3 + 3 * 4)
    )  # of four rounds each, one is trained
    # The same preset in another table: six runs, and a search of three rows, whose better point is a run.
    assert after["made_up/table1"] == pytest.approx(seconds * (6 * 4 + 3 * 4))
    reproduce("made_up/table2", pages / "made_up-table2", runs, seeds=2)
    assert listed_exhibits(pages, runs, 2)[1].seconds_left == 0


def test_the_rounds_of_a_search_count_with_the_sites_that_it_had(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        paper.read_text()
        .partition("[exhibits.table2]")[0]
        .partition('[[exhibits.table1.columns]]\nname = "lost"')[0]
    )
    more = text[text.index("[[exhibits") :].replace('"few"', '"all"').replace("= 0.5 }", "= 1.0 }")
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "made_up.toml").write_text(text + more)
    monkeypatch.setattr("fedrel.config.papers.papers_folder", lambda: folder)
    monkeypatch.setattr("fedrel.config.papers.papers", papers.__wrapped__)
    monkeypatch.setattr("fedrel.runs.exhibits.papers", papers.__wrapped__)
    pages, runs = tmp_path / "pages", tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce("made_up/table1", pages / "made_up-table1", runs, seeds=1, watch=stop_after(1))
    (line,) = next(runs.rglob("metrics.jsonl")).open()
    seconds = json.loads(line)["seconds"]  # of a round with half of the sites
    (listed,) = listed_exhibits(pages, runs, 1)
    searched = 3 * 4 - 1  # rounds of points that will not be runs of the table
    assert listed.seconds_left == pytest.approx((searched + 3 * 4) * seconds + 3 * 4 * 2 * seconds)


def test_the_rounds_of_a_search_are_counted_as_halving_trains_them(tmp_path: Path) -> None:
    grid = {"training.learning_rate": [0.01, 0.02, 0.03, 0.04, 0.05], "training.batch_size": [8]}
    for decay in (False, True):  # a rate that follows the run begins anew in every rung
        config, trained = tiny(training__rounds=4, training__linear_decay=decay), []
        halving(
            config,
            tmp_path / str(decay),
            grid,
            ["fedavg"],
            finalists=2,
            watch=lambda _, __, trained=trained: Watcher(round_done=trained.append),
        )
        assert (
            halving_rounds(config, grid, 2) == len(trained) == (5 * 1 + 3 * (1 + decay) + 2 * (2 + 2 * decay))
        )


def test_an_estimate_follows_method_epochs_active_sites_and_patience() -> None:
    def begun(
        rounds: int, seconds: float, preset: str = "p", finished: bool = False, **settings: object
    ) -> _Begun:
        config = tiny(**{"training__rounds": 10, **settings})
        job = Job("row", "column", 1, preset, config, Path("none"), settled=True)
        return _Begun(job, rounds, seconds, finished)

    known = [begun(10, 20.0, method="one", finished=True), begun(5, 5.0, method="fedavg")]
    epochs, fraction = tiny().training.epochs, tiny().training.fraction

    def left(rounds: int = 0, preset: str = "p", **settings: object) -> float | None:
        return begun(rounds, 0.0, preset, **settings).seconds_left(known)

    assert left(method="one") == pytest.approx(20)
    assert left(method="fedavg") == pytest.approx(10)
    assert left(4, method="fedavg") == pytest.approx(6)  # four of ten rounds are trained
    assert left(method="ave") == pytest.approx(10 * 25 / 15)  # as all others on average
    assert left(method="one", training__epochs=2 * epochs) == pytest.approx(40)
    assert left(method="one", training__fraction=fraction / 2) == pytest.approx(10)
    assert left(method="one", training__rounds=100) == pytest.approx(200)
    assert left(method="one", training__rounds=100, evaluation__patience=5) == pytest.approx(20)
    assert left(method="one", preset="another") is None


def test_one_column_with_its_own_rows_and_the_grid_of_a_stand_in(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().partition("[exhibits.table2]")[2]
    text = text.replace("paper = { one = 3, fedavg = 5 }", "")
    text = text.replace(
        "[exhibits.table2.rows]",
        """finalists = 1

[exhibits.table2.search]
"training.batch_size" = [1, 2, 3, 4, 5]

[exhibits.table2.instead_search]
"training.learning_rate" = [1e-6, 0.3]

[exhibits.table2.rows]
"fedavg, elsewhere" = { method = "fedavg", columns = ["much"] }""",
    ).replace('metric = "rounds"\ntarget = 0.01\n', 'metric = "auc"\n')
    config = tmp_path / "config.toml"
    much = f'[[exhibits.table2.columns]]\nname = "much"\npreset = "{config}"\n'
    paper.write_text(f'title = "Nobody"\n[exhibits.table2]{text}\n{much}')
    out, runs = tmp_path / "out", tmp_path / "runs"
    found = reproduce(f"{paper}/table2", out, runs, seeds=1, only=["few"])
    assert [(cell.row, cell.column, len(cell.runs)) for cell in found.cells] == [
        ("one", "few", 1),
        ("fedavg", "few", 1),
    ]
    assert [cell.settings for cell in found.cells] == [{"training.learning_rate": 0.3}] * 2
    trained = sorted(path.parent for path in runs.rglob("metrics.jsonl"))
    assert len(trained) == 4  # two points of the grid for each row; the better one is the table's run
    rounds = [len((folder / "metrics.jsonl").read_text().splitlines()) for folder in trained]
    assert sorted(rounds) == [2, 2, 4, 4]
    assert "--seeds 1 --column few" in write_page(out).read_text()
    with pytest.raises(UserError, match="has no column 'fwe'"):
        Plan(f"{paper}/table2", out, runs, 1, ["fwe"])
    paper.write_text(paper.read_text().replace('columns = ["much"]', 'columns = ["little"]'))
    with pytest.raises(UserError, match="names \\['little'\\], which are no columns"):
        find_exhibit(f"{paper}/table2")


def test_bytes_are_counted_and_so_ordered_without_an_interval(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().partition("[exhibits.table2]")[0]
    counted = text.replace('metric = "auc"', 'metric = "bytes"\nbetter = "less"').replace(
        "one = 70.0", "lazy-mil = 70.0"
    )
    counted = counted.replace("one = {}", "lazy-mil = {}").replace("paper = { one = 1.0 }", "")
    paper.write_text(counted)
    found = reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", seeds=1, search=False)
    (ordering,) = found.orderings
    lazy, fedavg = (cell.runs[0].value or 0 for cell in found.cells[:2])
    assert ordering.ours is not None
    assert ordering.ours.mean == ordering.ours.low == ordering.ours.high == fedavg - lazy
    assert (ordering.better, ordering.worse) == ("fedavg", "lazy-mil")  # 60 bytes against 70 in the paper
    assert (ordering.verdict, ordering.seeds) == ("holds" if fedavg < lazy else "fails", 1)
    assert "Over one seed" not in page_text(found)  # they have no spread


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


def test_an_unknown_table_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'feded/table3'"):
        find_exhibit("feded/tabel3")


@pytest.mark.parametrize(
    "name", [f"{paper}/{one}" for paper, facts in papers().items() for one in facts.exhibits]
)
def test_every_cell_of_every_paper_is_a_valid_experiment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrel.config.papers.missing_files", lambda config: [])
    _, exhibit = find_exhibit(name)
    known = presets()
    for column in exhibit.columns:
        assert column.preset in known
        assert column.instead is None or column.instead in known
        row, asked = next(iter(exhibit.rows_of(column).items()))
        config = experiment(column, row, asked, {}).config
        grids = [exhibit.search, exhibit.instead_search, *(row.search for row in exhibit.rows.values())]
        for key, values in (item for grid in grids for item in grid.items()):
            for value in values:
                config.with_settings({key: value})


def test_each_seed_has_its_own_fold_and_after_the_last_the_first_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedrel.config.papers.missing_files", lambda config: [])
    _, exhibit = find_exhibit("feded/table4")
    found = [
        experiment(exhibit.columns[0], "feded", exhibit.rows["feded"], {}, number).config
        for number in (0, 1, 10)
    ]
    assert [config.seed for config in found] == [1, 2, 11]
    files = [str(path) for config in found for path in (*config.data.train, *config.data.test)]
    assert files == [
        f"REdata.zip/euadr/{fold}/{part}.tsv" for fold in (1, 2, 1) for part in ("train", "test")
    ]


def test_missing_files_are_seen() -> None:
    assert missing_files(tiny()) == []
    assert Plan("lazy_mil/table3", Path("out"), Path("runs"), 1).columns[0].missing


@pytest.mark.parametrize(
    "record", sorted(RESULTS.glob("*/reproduction.json")), ids=lambda path: path.parent.name
)
def test_committed_pages_come_from_their_json(record: Path) -> None:
    reading = record.parent / "reading.md"
    said = reading.read_text(encoding="utf-8") if reading.exists() else ""
    page = (record.parent / "README.md").read_text(encoding="utf-8")
    assert page == page_text(read_json(Reproduction, record), said)
