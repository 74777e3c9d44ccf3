"""Attacks against defences: a table that goes on where it stopped; and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.cli.table_commands import _counts
from fedrel.errors import UserError
from fedrel.federation.engines.attacks import ATTACKS
from fedrel.methods.by_name import option_settings
from fedrel.runs import attack_table as module
from fedrel.runs.attack_table import DEFENCES, attack_table
from fedrel.runs.folder import read_json
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
