"""`fedrel reproduce`: plans, runs, budgets, verdicts and pages, on a made-up paper of a few seconds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from fedrel.cli.table_commands import _summary
from fedrel.config.papers import find_exhibit
from fedrel.errors import UserError
from fedrel.runs.folder import read_json
from fedrel.runs.plan import Plan, page_folder
from fedrel.runs.reproduce import reproduce
from fedrel.runs.reproduction_record import Reproduction
from fedrel.runs.train import Watcher
from fedrel.studio.reproduction_page import page_text, write_page
from tests.runs.conftest import columns, stop_after


def test_a_table_is_run_searched_and_put_beside_the_paper(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    told = 'metric = "auc"\ndifferences = [["fedavg, still", "fedavg"]]'
    paper.write_text(paper.read_text().replace('metric = "auc"', told, 1))
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
    (difference,) = found.differences  # nothing was run in the other column
    still = [run.value for run in cells["fedavg, still", "few"].runs]
    assert (difference.row, difference.other, difference.seeds) == ("fedavg, still", "fedavg", 2)
    assert difference.ours.mean == pytest.approx(sum(still) / 2 - sum(fedavg) / 2)
    assert difference.ours.low < difference.ours.mean < difference.ours.high

    trained = {path: path.stat().st_mtime_ns for path in runs.rglob("round-*.safetensors")}
    again = reproduce(f"{paper}/table1", out, runs, seeds=2)
    assert again == found
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("round-*.safetensors")} == trained

    shutil.rmtree(runs)  # as in another clone, which has the page and no runs
    assert reproduce(f"{paper}/table1", out, runs, seeds=2) == found
    assert not runs.exists()
    longer = paper.parent / "config.toml"
    longer.write_text(longer.read_text().replace("rounds = 4", "rounds = 5"))
    stopped = reproduce(f"{paper}/table1", tmp_path / "beside", runs, seeds=2, budget=0)
    assert not any(cell.runs for cell in stopped.cells)  # what was kept is not long enough
    longer.write_text(longer.read_text().replace("rounds = 5", "rounds = 4"))
    assert reproduce(f"{paper}/table1", out, runs, seeds=2, budget=0) == found

    page = write_page(out).read_text()
    assert "[70.0]" in page
    best = cells["one", "few"].trials[1]
    assert f"; learning_rate 0.3: {best.dev:.3f} by round 4\n" in page
    assert "was not run: no such file" in page
    mean = f"{difference.ours.mean * 100:+.3g}"
    assert f"| few | fedavg, still \N{MINUS SIGN} fedavg | {mean} [" in page
    assert f"{tmp_path}/no.jsonl" not in page  # a path of this machine
    assert page == page_text(read_json(Reproduction, out / "reproduction.json"))
    assert (out / "curves.svg").exists()


def test_a_further_difference_may_be_in_another_metric(paper: Path, tmp_path: Path) -> None:
    name, runs = columns(paper, few='"training.fraction" = 0.5'), tmp_path / "runs"
    told = 'metric = "auc"\ndifferences = [["one", "fedavg", "max_f1"]]'
    paper.write_text(paper.read_text().replace('metric = "auc"', told, 1))
    found = reproduce(name, tmp_path / "out", runs, seeds=1, search=False)
    (difference,) = found.differences
    shown = {cell.row: cell.runs[0].value for cell in found.cells}
    results = [json.loads(path.read_text())["metrics"] for path in runs.glob("*/result.json")]
    one, fedavg = (
        next(one["max_f1"] for one in results if one["auc"] == shown[row]) for row in found.rows[:2]
    )
    assert difference.ours.mean == pytest.approx(one - fedavg)
    assert "| few | one \N{MINUS SIGN} fedavg, Max F1 | " in write_page(tmp_path / "out").read_text()
    assert reproduce(name, tmp_path / "out", runs, seeds=1, search=False) == found  # as the page has it


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


def test_rounds_to_a_target_are_compared_over_three_seeds_or_more(paper: Path, tmp_path: Path) -> None:
    for seeds in (2, 3):
        found = reproduce(f"{paper}/table2", tmp_path / "out", tmp_path / "runs", seeds=seeds)
        (ordering,) = found.orderings
        assert (ordering.seeds, ordering.ours is None) == (seeds, seeds == 2)
    one, fedavg = ([run.value or run.rounds + 1 for run in cell.runs] for cell in found.cells)
    assert ordering.ours is not None
    assert ordering.ours.mean == pytest.approx(sum(one) / 3 - sum(fedavg) / 3)
    assert (ordering.better, ordering.ours.low <= ordering.ours.mean <= ordering.ours.high) == ("one", True)
    assert all(run.converged for cell in found.cells for run in cell.runs if run.value is not None)


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


def test_numbers_of_the_same_runs_are_columns_and_precision_is_not_ordered(
    paper: Path, tmp_path: Path
) -> None:
    """What a threshold trades for recall says nothing of a method alone; and runs count once."""
    config, classified = paper.parent / "config.toml", '"evaluation.task" = "classification"'
    name = columns(paper, few=classified)
    text = paper.read_text().replace('metric = "auc"', 'metric = "f1"\ndifferences = [["one", "fedavg"]]')
    more = f'metric = "precision"\npreset = "{config}"\nset = {{ {classified} }}\npaper = {{ one = 7, fedavg = 6 }}'
    paper.write_text(f'{text}[[exhibits.table1.columns]]\nname = "precise"\n{more}\n')
    out, runs = tmp_path / "out", tmp_path / "runs"
    found = reproduce(name, out, runs, seeds=1, search=False)
    assert len(list(runs.glob("*/metrics.jsonl"))) == len(found.runs) == 3
    (one,) = (json.loads(path.read_text())["metrics"] for path in runs.glob("*-one-*/result.json"))
    assert [cell.runs[0].value for cell in found.cells if cell.row == "one"] == [one["f1"], one["precision"]]
    assert {one.column for one in (*found.orderings, *found.differences)} == {"few"}
    page = write_page(out).read_text()
    assert "\n- 3 runs, " in page
    drawn = (out / "curves.svg").read_text()
    assert ("few" in drawn, "precise" in drawn) == (True, False)
    assert _summary(found).startswith("3 of 3 runs are finished\n")
    assert {cell.column for cell in found.cells for run in cell.runs if run.dev} == {"few"}
    assert len(Plan(name, out, runs, 1, searched=False).distinct_jobs()) == 3
    (out / "reproduction.json").unlink()  # either column brings the other
    again = reproduce(name, out, runs, seeds=1, search=False, only=["precise"])
    assert again.cells == found.cells


def test_columns_of_other_folds_are_of_other_runs(paper: Path, tmp_path: Path) -> None:
    """Though their presets and settings are the same."""
    data, name = tmp_path / "data.toml", columns(paper)
    data.write_text('[data]\ncorpus = "files"\ntrain = ["train.jsonl"]\ntest = ["test.jsonl"]\n')
    with paper.open("a") as file:
        for fold in "AB":
            file.write(f'[[exhibits.table1.columns]]\nname = "fold {fold}"\npreset = "{data}"\nfolds = 1\n')
            file.write(f'fold_files = {{ "data.test" = ["{fold}.jsonl"] }}\n')
    plan = Plan(name, tmp_path / "out", tmp_path / "runs", 1, ["fold A"], searched=False)
    assert [note.name for note in plan.asked] == ["fold A"]
    assert all(note.missing for note in plan.columns)


def test_a_metric_of_a_difference_that_no_run_has_is_refused(paper: Path, tmp_path: Path) -> None:
    name = columns(paper, few='"training.rounds" = 1')
    told = 'metric = "auc"\ndifferences = [["one", "fedavg", "max_F1"]]'
    paper.write_text(paper.read_text().replace('metric = "auc"', told, 1))
    with pytest.raises(UserError, match="names 'max_F1', which runs do not have") as raised:
        reproduce(name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False, rows=["one"])
    assert raised.value.hint == "did you mean 'max_f1'?"


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
    late = [run for cell in found.cells for run in cell.runs if not run.converged]
    assert late == []  # more rounds would not change them


def test_a_run_ends_when_dev_gets_no_better_and_a_late_best_round_is_told(
    paper: Path, tmp_path: Path
) -> None:
    patient = '"training.rounds" = 12, "evaluation.patience" = 2, "training.learning_rate" = 1e-9'
    learns = '"training.rounds" = 4, "evaluation.patience" = 2, "training.learning_rate" = 0.3'
    name = columns(paper, still=patient, learns=learns)
    found = reproduce(name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False, rows=["one"])
    still, learns = (run for cell in found.cells for run in cell.runs)
    assert still.rounds == still.best_round + 2 < 12
    assert still.converged == (still.best_round <= 0.9 * still.rounds)
    best = max(learns.dev, key=lambda one: one[1])
    assert (learns.best_round, learns.rounds) == (best[0], 4)
    assert learns.converged == (learns.best_round < 4)
    assert not learns.converged  # in four rounds dev rises to the last


def test_bytes_are_compared_over_common_seeds(paper: Path, tmp_path: Path) -> None:
    name = columns(paper, few='"training.fraction" = 0.5')
    paper.write_text(paper.read_text().replace('metric = "auc"', 'metric = "bytes"'))
    asked = {"runs": tmp_path / "runs", "out": tmp_path / "out", "search": False}
    reproduce(name, seeds=1, rows=["fedavg"], **asked)
    found = reproduce(name, seeds=2, rows=["one"], **asked)
    one, fedavg = ([run.value or 0 for run in cell.runs] for cell in found.cells[:2])
    assert (len(one), len(fedavg)) == (2, 1)
    assert found.orderings[0].ours is not None
    assert found.orderings[0].ours.mean == one[0] - fedavg[0]


def test_rows_with_other_test_sets_cannot_be_told_apart(paper: Path, tmp_path: Path) -> None:
    name = columns(paper, few='"training.fraction" = 0.5')
    paper.write_text(paper.read_text().replace("one = {}", 'one = { set = { "data.sentences" = 1500 } }', 1))
    found = reproduce(name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False)
    assert [(one.ours, one.verdict) for one in found.orderings] == [(None, "cannot be told")]


def test_settings_by_hand_are_in_the_runs_and_in_the_command(paper: Path, tmp_path: Path) -> None:
    name = columns(paper, few='"training.fraction" = 0.5')
    by_hand = ["training.rounds=1", "training.fraction=1.0"]
    found = reproduce(
        name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False, rows=["one"], settings=by_hand
    )
    assert found.cells[0].runs[0].rounds == 1
    assert found.command.endswith(
        " --set training.rounds=1 --set training.fraction=1.0 --out FOLDER --no-search"
    )
    assert "`training.fraction = 1.0`, `training.rounds = 1`." in write_page(tmp_path / "out").read_text()


def test_a_stand_in_may_have_a_target_of_its_own(paper: Path, tmp_path: Path) -> None:
    paper.write_text(paper.read_text().replace("target = 0.01", "target = 0.99\ninstead_target = 0.01"))
    found = reproduce(f"{paper}/table2", tmp_path / "out", tmp_path / "runs", seeds=1)
    assert all(run.value is not None for cell in found.cells for run in cell.runs)
    assert found.orderings == []
    page = write_page(tmp_path / "out").read_text()
    assert "The paper's numbers are rounds to 0.99, ours to 0.01." in page


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('metric = "auc"', 'metric = "aucc"', "have no metric 'aucc'"),
        ('metric = "auc"', 'metric = "f1/nothing"', "have no metric 'f1/nothing'"),
        ("fedavg = {}", 'fedavg = { method = "fedagv" }', "fedagv"),
        ("fedavg = {}", 'fedavg = { set = { "training.ronds" = 1 } }', "ronds"),
        ('name = "few"\npreset = "', 'name = "few"\npreset = "no-', "no config file and no preset"),
        ("one = {}\nfedavg = {}", "", "which are no rows"),
    ],
)
def test_a_mistake_in_a_table_is_said_and_not_shown_as_missing_data(
    paper: Path, tmp_path: Path, before: str, after: str, said: str
) -> None:
    name = columns(paper, few='"training.rounds" = 1')
    assert before in paper.read_text()
    paper.write_text(paper.read_text().replace(before, after, 1))
    trained: list[str] = []

    def watch(one: str, _: object) -> Watcher:
        trained.append(one)
        return Watcher()

    with pytest.raises(UserError, match=re.escape(said)):
        reproduce(name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False, rows=["one"], watch=watch)
    assert trained == ([] if "metric" not in before else ["one, few, seed 1"])


def test_precision_by_recall_is_that_of_the_runs(paper: Path, tmp_path: Path) -> None:
    name, out, runs = columns(paper, few='"training.rounds" = 2'), tmp_path / "out", tmp_path / "runs"
    paper.write_text(paper.read_text().replace('metric = "auc"', 'metric = "auc"\nplot = "precision"'))
    found = reproduce(name, out, runs, seeds=1, search=False, rows=["one"])
    drawn = found.cells[0].runs[0].precision
    curve = json.loads(next(runs.glob("*-one-*/pr_curve.json")).read_text())
    whole = list(zip(curve["recall"], curve["precision"], strict=True))
    assert 4 < len(drawn) <= 80
    assert set(drawn) <= {(round(recall, 4), round(precision, 4)) for recall, precision in whole}
    assert drawn[-1][0] == 1.0
    assert "![precision by recall on the test set](curves.svg)" in write_page(out).read_text()
    paper.write_text(paper.read_text().replace("set = {", 'set = { "evaluation.task" = "classification",'))
    with pytest.raises(UserError, match="answers without an order"):
        reproduce(name.replace("auc", "f1"), out, runs, seeds=1, search=False, rows=["one"])
