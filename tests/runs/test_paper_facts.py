"""The facts of the papers: every cell is an experiment that could be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.config.papers import Column, experiment, find_exhibit, missing_files, papers
from fedrel.config.sources import presets
from fedrel.errors import UserError
from fedrel.runs.compare import checked
from fedrel.runs.plan import Plan
from tests.conftest import tiny


def test_an_unknown_table_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'feded/table3'"):
        find_exhibit("feded/tabel3")


def test_a_difference_of_an_unknown_row_is_refused(paper: Path) -> None:
    told = 'metric = "auc"\ndifferences = [["feded", "one"]]'
    paper.write_text(paper.read_text().replace('metric = "auc"', told, 1))
    with pytest.raises(UserError, match="`differences` names \\['feded'\\], which are no rows"):
        find_exhibit(f"{paper}/table1")


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
        for row, asked in exhibit.rows_of(column).items():
            config = experiment(column, row, asked, {}).config
            checked(config, {})
            for grid in (exhibit.search, exhibit.instead_search, asked.search):
                for key, values in grid.items():
                    for value in values:
                        checked(config, {key: value})


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


def test_a_fold_is_put_in_and_other_braces_stay() -> None:
    column = Column(name="c", preset="demo", folds=3, fold_files={"data.train": ["{fold}/{x}.tsv"]})
    assert [column.fold(number) for number in (0, 3, 4)] == [
        {"data.train": [f"{fold}/{{x}}.tsv"]} for fold in (1, 1, 2)
    ]


def numbers(name: str) -> dict[str, dict[str, float]]:
    """What a paper has in a table, by column and row."""
    return {column.name: column.paper for column in find_exhibit(name)[1].columns}


@pytest.mark.parametrize(
    ("name", "cells"),
    [*((f"feded/table{n}", 4) for n in (3, 4, 5)), *((f"fedlcc/table{n}", 7) for n in (3, 4, 5))],
)
def test_f1_is_that_of_precision_and_recall(name: str, cells: int) -> None:
    """A mistyped fact would be no harmonic mean."""
    table, checked = numbers(name), 0
    for column in (one for one in table if f"{one}, recall" in table):
        for row, f1 in table[column].items():
            precision, recall = table[f"{column}, precision"][row], table[f"{column}, recall"][row]
            if (name, column, row) != ("fedlcc/table4", "by entropy", "fedavg"):  # a misprint of the paper's
                assert f1 == pytest.approx(2 * precision * recall / (precision + recall), abs=0.06), row
            checked += 1
    assert checked == cells


@pytest.mark.parametrize("name", ["table7", "table7-mirgene", "table8"])
def test_the_mean_is_that_of_p_at_100_200_and_300(name: str) -> None:
    table = numbers(f"lazy_mil/{name}")
    means = [column for column in table if f"{column}, P@100" in table]
    assert len(means) == len(table) / 4
    for column in means:
        for row, mean in table[column].items():
            at = [table[f"{column}, P@{n}"][row] for n in (100, 200, 300)]
            if (name, column, row) == ("table8", "MIRGENE", "att-ra"):
                continue  # the paper prints 78.6, of 85.0, 80.5 and 71.7
            assert mean == pytest.approx(sum(at) / 3, abs=0.1), (column, row)


@pytest.mark.parametrize(("ours", "first"), [("table7", "table2"), ("table7-mirgene", "table4")])
def test_both_versions_of_lazy_mil_have_the_same_precisions(ours: str, first: str) -> None:
    """The papers do: weights by size or alike made no difference that they print."""
    published = numbers(f"lazy_mil/{ours}")
    for column, paper in numbers(f"lazy_mil_arxiv/{first}").items():
        fraction, _, n = column.partition(", ")
        (same,) = (one for one in published if one.endswith(fraction if n == "mean" else column))
        for row, value in paper.items():
            assert value == pytest.approx(published[same][row], abs=0.06), (column, row)


def test_missing_files_are_seen() -> None:
    assert missing_files(tiny()) == []
    assert Plan("lazy_mil/table3", Path("out"), Path("runs"), 1).columns[0].missing
