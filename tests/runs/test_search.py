"""The search for each row's settings on dev: which searches there are, what they try, and sweeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.config.papers import find_exhibit
from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.runs.plan import Plan
from fedrel.runs.reproduce import reproduce
from fedrel.runs.sweep import DIVERGED, best_of, halving, halving_rounds, sweep
from fedrel.runs.train import Watcher, run
from fedrel.studio.reproduction_page import write_page
from fedrel.studio.sweep_page import sweep_markdown
from tests.conftest import tiny
from tests.runs.conftest import columns


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
        (one.row, one.config.partition.sites, one.config.training.fraction) for one in plan.searches.all
    }
    half, whole = 0.5, tiny().training.fraction
    assert presets == {
        ("one", tiny().partition.sites, half),
        ("one", 2, whole),
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


def test_what_a_row_or_column_sets_is_not_searched(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().partition('[[exhibits.table1.columns]]\nname = "lost"')[0]
    column = f'[[exhibits.table1.columns]]\nname = "slow"\npreset = "{tmp_path / "config.toml"}"\n'
    paper.write_text(
        f'{text}{column}set = {{ "training.learning_rate" = 1e-8 }}\npaper = {{ fedavg = 1.0 }}\n'
    )
    asked = {"seeds": 1, "rows": ["fedavg", "fedavg, still"]}
    found = reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", **asked)
    shown = {(cell.row, cell.column): (cell.settings, bool(cell.trials)) for cell in found.cells if cell.runs}
    assert shown == {
        ("fedavg", "few"): ({"training.learning_rate": 0.3}, True),
        ("fedavg", "slow"): ({}, False),
        ("fedavg, still", "few"): ({}, False),
        ("fedavg, still", "slow"): ({}, False),
    }
    values = {(cell.row, cell.column): cell.runs[0].value for cell in found.cells if cell.runs}
    assert values["fedavg", "few"] != values["fedavg", "slow"]


def test_columns_share_a_search_of_the_same_settings(paper: Path, tmp_path: Path) -> None:
    searched = '[exhibits.table1.search]\n"training.batch_size" = [4, 8]\n'
    rates = {f"rate {rate}": f'"training.learning_rate" = {rate}' for rate in (0.1, 0.2)}
    name = columns(paper, **rates, all='"training.fraction" = 1.0')
    paper.write_text(paper.read_text().replace("[exhibits.table1.search]\n", searched))
    plan = Plan(name, tmp_path / "out", tmp_path / "runs", 1)
    own = [one for one in plan.searches.all if one.row == "one"]
    found = {tuple(one.grid): one.config.training for one in own}
    size, rate = "training.batch_size", "training.learning_rate"
    assert {grid: config.fraction for grid, config in found.items()} == {(size,): 0.5, (size, rate): 1.0}
    assert found[size,].learning_rate == 0.1  # on the first of the two columns


def test_halving_refuses_the_runs_of_another_experiment(tmp_path: Path) -> None:
    grid = {"training.learning_rate": [0.3, 1e-6]}
    halving(tiny(training__rounds=2), tmp_path, grid, ["fedavg"])
    with pytest.raises(UserError, match=r"data\.noise"):
        halving(tiny(training__rounds=2, data__noise=0.1), tmp_path, grid, ["fedavg"])


def test_a_point_of_the_grid_that_diverges_loses(paper: Path, tmp_path: Path) -> None:
    paper.write_text(paper.read_text().replace("[1e-6, 0.3]", "[1e30, 0.3]"))
    found = reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", seeds=1, rows=["fedavg"])
    assert found.cells[1].settings == {"training.learning_rate": 0.3}
    assert len(found.cells[1].runs) == 1


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


def test_halving_measures_a_run_that_was_trained_further_like_a_new_one(tmp_path: Path) -> None:
    config = tiny(training__rounds=7, evaluation__every=3)
    grid = {"training.learning_rate": [0.3, 1e-6, 1e-7, 1e-8, 1e-9]}
    few = {"training.learning_rate": [0.3, 1e-6]}
    sweep(config, tmp_path / "both", few, ["fedavg"])
    after, fresh = (halving(config, tmp_path / name, grid, ["fedavg"]) for name in ("both", "new"))
    assert after == fresh
    assert after.best == {"fedavg": {"training.learning_rate": 0.3}}
    assert [one.rounds for one in fresh.rows] == [3] * 5 + [7] * 3


def test_a_shorter_sweep_does_not_take_the_longer_ones_runs(tmp_path: Path) -> None:
    grid = {"training.learning_rate": [0.3]}
    sweep(tiny(training__rounds=2), tmp_path, grid, ["fedavg"])
    with pytest.raises(UserError, match="has 2 rounds already, but"):
        sweep(tiny(training__rounds=1), tmp_path, grid, ["fedavg"])


def test_a_less_patient_sweep_does_not_take_a_more_patient_ones_runs(tmp_path: Path) -> None:
    grid, still = {"training.learning_rate": [1e-9]}, {"training__rounds": 6}
    found = sweep(tiny(**still, evaluation__patience=4), tmp_path, grid, ["fedavg"])
    assert sweep(tiny(**still, evaluation__patience=4), tmp_path, grid, ["fedavg"]) == found
    with pytest.raises(
        UserError, match=r"has 5 rounds already, but ends after round 3 with this evaluation\.patience"
    ):
        sweep(tiny(**still, evaluation__patience=2), tmp_path, grid, ["fedavg"])


def test_a_refused_run_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    still = tiny(training__rounds=6, training__learning_rate=1e-9, evaluation__patience=4)
    run(still, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="ends after round 3"):
        run(still.with_settings({"evaluation.patience": 2}), tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_halving_tells_when_the_target_was_reached(tmp_path: Path) -> None:
    config = tiny(training__rounds=4, evaluation__target=0.01)
    grid = {"training.learning_rate": [1e-9, 0.3]}
    found = halving(config, tmp_path, grid, ["fedavg"], finalists=1)
    assert halving(config, tmp_path, grid, ["fedavg"], finalists=1) == found  # read from the runs
    assert len(found.rows) == 3
    for one in found.rows:
        folder = tmp_path / "fedavg" / f"training.learning_rate={one.settings['training.learning_rate']}"
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()][: one.rounds]
        expected = next((line["round"] for line in lines if line["dev"]["auc"] >= 0.01), None)
        assert [when and when.round for when in one.reached] == [expected]
    assert any(one.reached[0] for one in found.rows)


def test_halving_refuses_the_runs_of_a_more_patient_one(tmp_path: Path) -> None:
    grid, config = {"training.learning_rate": [1e-9]}, tiny(training__rounds=4, evaluation__patience=3)
    halving(config, tmp_path, grid, ["fedavg"])
    with pytest.raises(UserError, match="has 4 rounds already, but ends after round 3"):
        halving(config.with_settings({"evaluation.patience": 2}), tmp_path, grid, ["fedavg"])


def test_halving_refuses_a_run_that_was_not_evaluated_where_it_looks(tmp_path: Path) -> None:
    grid, config = {"training.learning_rate": [0.3]}, tiny(training__rounds=6, evaluation__every=3)
    halving(config, tmp_path, grid, ["fedavg"])
    with pytest.raises(UserError, match="has more rounds than 2, after which it was not evaluated"):
        halving(config.with_settings({"training.rounds": 2}), tmp_path, grid, ["fedavg"])


def test_where_the_finalist_diverges_the_best_of_the_others_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = {0.1: 0.01, 0.2: 0.5, 0.4: 0.6}

    def after(config: Config, _: Path, rounds: int, __: Watcher) -> tuple[float, None]:
        rate = config.training.learning_rate
        return (DIVERGED if rounds == 4 and rate == 0.4 else dev[rate]), None

    monkeypatch.setattr("fedrel.runs.sweep._after", after)
    config = tiny(training__rounds=4)
    found = halving(config, tmp_path, {"training.learning_rate": [*dev]}, ["fedavg"], finalists=1)
    assert [(trial.settings["training.learning_rate"], trial.rounds) for trial in found.rows] == [
        (0.1, 1), (0.2, 1), (0.4, 1), (0.4, 2), (0.2, 2), (0.4, 4)
    ]  # fmt: skip
    assert best_of(tmp_path, ["fedavg"]) == {"fedavg": {"training.learning_rate": 0.2}}
    assert "**training.learning_rate=0.2**" in sweep_markdown(found)


def test_a_sweep_goes_on_after_a_combination_that_diverges(tmp_path: Path) -> None:
    config = tiny(training__rounds=1)
    found = sweep(config, tmp_path, {"training.learning_rate": [1e30, 0.3]}, ["fedavg"], seeds=2)
    assert found.best == {"fedavg": {"training.learning_rate": 0.3}}
    assert "| fedavg | training.learning_rate=1e+30 | 2 of 2 diverged |" in sweep_markdown(found)


def test_where_all_combinations_diverge_none_is_the_best(paper: Path, tmp_path: Path) -> None:
    sweep(tiny(training__rounds=1), tmp_path, {"training.learning_rate": [1e30, 1e31]}, ["fedavg"])
    assert best_of(tmp_path, ["one"]) == {}
    with pytest.raises(UserError, match="every combination of fedavg diverged"):
        best_of(tmp_path, ["one", "fedavg"])
    paper.write_text(paper.read_text().replace("[1e-6, 0.3]", "[1e30, 1e31]"))
    asked = {"seeds": 1, "only": ["few"], "rows": ["fedavg"]}
    found = reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", **asked)
    (cell,) = (one for one in found.cells if one.row == "fedavg")
    assert (cell.runs, cell.diverged) == ([], [1])
    assert [one.verdict for one in found.orderings if one.column == "few"] == ["diverged"]
    assert "1 diverged" in write_page(tmp_path / "out").read_text()
    assert {trial.dev for trial in cell.trials} == {DIVERGED}


def test_a_damaged_search_is_named(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    reproduce(f"{paper}/table1", out, runs, seeds=1, only=["few"], rows=["fedavg"])
    (kept,) = (out / "runs").glob("search-*.json")
    kept.write_text(kept.read_text().replace('"best": {', '"best": {"none": {}, '))
    with pytest.raises(UserError) as raised:
        reproduce(f"{paper}/table1", out, runs, seeds=1, only=["few"], rows=["fedavg"])
    assert raised.value.file == kept


@pytest.mark.parametrize("grid", [{}, {"training.learning_rate": []}, {"seed": [1]}, {"method": ["one"]}])
@pytest.mark.parametrize("search", [sweep, halving])
def test_what_cannot_be_searched_is_refused(
    grid: dict[str, list[object]], search: Callable[..., object], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"nothing to sweep|cannot be searched"):
        search(tiny(), tmp_path, grid, ["fedavg"])


def test_halving_has_its_own_numbers_of_rounds(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"training\.rounds cannot be searched by halving"):
        halving(tiny(), tmp_path, {"training.rounds": [1, 2]}, ["fedavg"])
