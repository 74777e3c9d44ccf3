"""Attacks against defences: a table that goes on where it stopped; and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.cli.table_commands import _counts
from fedrel.errors import UserError
from fedrel.federation.engines.attacks import ATTACKS
from fedrel.files import InUseError, locked
from fedrel.methods.by_name import option_settings
from fedrel.runs import attack_table as module
from fedrel.runs.attack_table import DEFENCES, attack_table, fitting
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.records import AttackCell, AttackTable
from fedrel.studio.protection_pages import worst, write_attack_page
from tests.conftest import tiny

RESULTS = Path(__file__).parents[2] / "results"


def cells(*given: tuple[str, int, str, float | None]) -> list[AttackCell]:
    return [AttackCell(attack=a, liars=n, defence=d, value=v) for a, n, d, v in given]


@pytest.fixture
def trained(monkeypatch):
    """Which cells were trained; nothing is."""
    asked = []

    def cell(config, folder, attack, count, defence):
        asked.append((attack, count, defence.name))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return cells((attack, count, defence.name, 0.5))[0]

    monkeypatch.setattr(module, "_cell", cell)
    return asked


def test_a_table_that_was_stopped_goes_on_with_what_is_missing(out, trained):
    def make():
        return attack_table(tiny(), out, ["scaling", "replay"], [2, 0, 1], ["none", "median"])

    with pytest.raises(KeyboardInterrupt):
        make()
    assert trained[:2] == [("none", 0, "none"), ("none", 0, "median")]
    assert trained[2:4] == [("absent", 2, "none"), ("absent", 1, "none")]  # what their text is worth
    assert len(make().cells) == 2 + 2 + 2 * 2 * 2
    assert len(trained) == 13 and trained[3] == trained[4]
    make()
    assert len(trained) == 13
    with pytest.raises(UserError, match="is of another config"):
        attack_table(tiny(seed=3), out, ["scaling"], [1], ["none"])
    for longer in ({"training__rounds": 60}, {"evaluation__patience": 2}):
        with pytest.raises(UserError, match="is of another config"):
            attack_table(tiny(**longer), out, ["scaling"], [1], ["none"])


def honest(out: Path, **settings) -> AttackTable:
    """A table of one cell, without lies."""
    return attack_table(tiny(training__rounds=1, **settings), out, [], [], ["none"])


def test_one_process_works_at_a_table(out):
    with locked(out), pytest.raises(InUseError, match="another process works in this folder"):
        honest(out)
    assert not out.exists()
    (cell,) = honest(out).cells
    assert cell.value is not None and [path.name for path in out.iterdir()] == ["attacks.json"]


def test_a_run_in_which_another_process_works_is_left_alone(out):
    (out / "run").mkdir(parents=True)
    (out / "run" / "metrics.jsonl").write_text("another's")
    with locked(out / "run"), pytest.raises(InUseError):
        honest(out)
    assert (out / "run" / "metrics.jsonl").read_text() == "another's" and not (out / "attacks.json").exists()
    assert honest(out).cells[0].stopped is None


def test_a_cell_that_cannot_be_written_is_missing_and_not_stopped(out):
    out.mkdir()
    (out / "run").touch()
    with pytest.raises(UserError, match="cannot write"):
        honest(out)
    assert not (out / "attacks.json").exists()


def test_a_run_that_diverges_is_stopped(out):
    (cell,) = honest(out, method="fedavg", training__learning_rate=1e8).cells
    assert cell.value is None and "training diverged" in cell.stopped
    assert [path.name for path in out.iterdir()] == ["attacks.json"]


def test_a_run_is_removed_once_its_cell_is_written(out, monkeypatch):
    there = []

    def write(file, table):
        there.append((out / "run" / "result.json").exists())
        write_json(file, table)

    monkeypatch.setattr(module, "write_json", write)
    honest(out)
    assert there == [True] and not (out / "run").exists()


def test_what_a_killed_process_left_is_removed(out):
    table = honest(out)
    (out / "run").mkdir()
    (out / "run" / "result.json").touch()
    assert honest(out) == table and not (out / "run").exists()


def test_defences_that_the_method_cannot_have_are_refused_before_training(out, trained):
    config = tiny(method="scaffold")
    with pytest.raises(UserError, match=r"aggregation\.rule 'median' cannot be used with scaffold"):
        attack_table(config, out, ["scaling"], [1], ["none", "median"])
    assert not trained and not out.exists()
    assert fitting(config) == ["none", "norm-bound"]
    assert fitting(tiny(method="fedavg", training__fraction=1.0, partition__sites=10)) == list(DEFENCES)


@pytest.mark.parametrize(
    ("attacks", "defences", "message"),
    [(["scale"], ["none"], "no attack is called 'scale'"), (["scaling"], ["krum"], "no defence is called")],
)
def test_a_wrong_name_is_answered_with_the_nearest(out, attacks, defences, message):
    with pytest.raises(UserError, match=message):
        attack_table(tiny(), out, attacks, [1], defences)


def test_the_page_has_a_row_for_each_attack_and_number_and_a_column_for_each_defence(out):
    found = cells(
        ("none", 0, "none", 0.8),
        ("none", 0, "all", 0.79),
        ("scaling", 4, "none", None),
        *((attack, 4, "all", 0.785) for attack in ATTACKS),
    )
    page = write_attack_page(
        out, AttackTable(metric="auc", config="x", cells=found), {"none": "a", "all": "b"}
    )
    text = page.read_text()
    assert "| attack | liars | none | all |" in text
    assert "| none | 0 | 0.800 | 0.790 |" in text
    assert "| scaling | 4 | stopped | 0.785 |" in text
    assert "| sign-flip | 4 | - | 0.785 |" in text
    assert "| **largest loss** | 4 | stopped | 0.015 |" in text


def test_the_worst_attack_counts():
    found = cells(("none", 0, "none", 0.8), *((attack, 4, "all", 0.79) for attack in ATTACKS))
    table = AttackTable(metric="auc", config="x", cells=found)
    assert worst(table, 4, "all") == pytest.approx(0.01)
    assert worst(table, 4, "none") is None


def test_numbers_of_liars_are_checked():
    assert _counts("4,0,4,12", 40) == [0, 4, 12]
    for given in ("40", "x", "-1"):
        with pytest.raises(UserError, match="expected numbers from 0 to 39"):
            _counts(given, 40)


def test_every_defence_is_a_config_that_is_valid():
    for defence in DEFENCES.values():
        for name in ("lazy-mil", "lazy-one", "fedavg"):
            options = option_settings(name, defence.options)
            tiny(method=name).with_settings({**defence.settings, **options})
            assert list(options) == [f"methods.{name}.{key}" for key in defence.options if name != "fedavg"]


@pytest.mark.slow
def test_cells_are_trained_with_and_without_lies(out):
    config = tiny(method="lazy-mil", training__fraction=1.0, training__rounds=2)
    table = attack_table(config, out, list(ATTACKS), [2], ["none", "all"])
    assert {one.stopped for one in table.cells} == {None}
    honest = table.value("none", 0, "none")
    lied = [one.value for one in table.cells if one.defence == "none" and one.liars]
    assert len(lied) == 1 + len(ATTACKS) and honest not in lied


@pytest.mark.parametrize("folder", sorted({path.parent for path in RESULTS.glob("attacks/**/attacks.json")}))
def test_committed_tables_of_attacks_come_from_their_json(folder: Path, tmp_path: Path) -> None:
    table = read_json(AttackTable, folder / "attacks.json")
    page = write_attack_page(tmp_path, table, {name: one.about for name, one in DEFENCES.items()})
    assert page.read_text(encoding="utf-8") == (folder / "attacks.md").read_text(encoding="utf-8")
