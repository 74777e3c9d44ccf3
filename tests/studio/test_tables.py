from __future__ import annotations

from io import StringIO
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console

from fedrel.studio.runs import read_run
from fedrel.studio.tables import Row, comparison_markdown, comparison_rows, comparison_table, summarise


def made(method: str, seed: int, auc: float, chosen: float | None = None, up: int = 2_000_000) -> Row:
    return {
        "method": method,
        "seed": seed,
        "metrics": {"auc": auc, "max_f1": auc / 2},
        "rounds": 10,
        "bytes": {"up": up, "down": 1500},
        "seconds": 75.0,
        "selection_precision": chosen,
    }


def test_rows_are_the_results(comparison: dict[str, list[Path]]) -> None:
    rows = comparison_rows(comparison)
    assert [(row["method"], row["seed"]) for row in rows] == [(m, s) for m in comparison for s in (1, 2)]
    for row, folder in zip(rows, chain.from_iterable(comparison.values()), strict=True):
        result = read_run(folder).result
        assert row["metrics"] == result.metrics
        assert row["bytes"] == {"up": result.bytes.up, "down": result.bytes.down}
        assert (row["rounds"], row["seconds"]) == (result.rounds, result.seconds)
        assert row["selection_precision"] == result.selection_precision


def test_markdown_by_hand() -> None:
    rows = [made("a|b", 1, 0.40, 0.5), made("a|b", 2, 0.44, 0.7), made("c", 1, 0.30), made("c", 2, 0.30)]
    assert comparison_markdown(rows) == (
        "| method | AUC | Max F1 | Selection precision | Rounds | Sent by sites | Sent to sites | Time |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| a\\|b | **0.420 ± 0.028** | **0.210 ± 0.014** | 0.600 ± 0.141 | 10 | 2.0 MB | 1.5 kB | 1 min 15 s |\n"
        "| c | 0.300 ± 0.000 | 0.150 ± 0.000 | — | 10 | 2.0 MB | 1.5 kB | 1 min 15 s |\n"
        "\nMean ± standard deviation over seeds 1 and 2.\n"
    )


def test_costs_that_differ_show_their_spread_and_are_never_bold() -> None:
    rows = [made("a", 1, 0.4, up=1_000_000), made("a", 2, 0.4, up=3_000_000), made("b", 1, 0.4)]
    column = next(column for column in summarise(rows).columns if column.name == "up")
    assert column.text("a") == "2.0 MB ± 1.4 MB"
    assert column.best == frozenset()


def test_what_prints_the_same_is_equally_best() -> None:
    rows = [made("a", 1, 0.41231), made("b", 1, 0.41239), made("c", 1, 0.4110)]
    auc = summarise(rows).columns[0]
    assert auc.best == {"a", "b"}


def test_a_single_method_is_not_the_best_of_anything() -> None:
    rows = [made("a", 1, 0.4)]
    assert "**" not in comparison_markdown(rows)
    assert "One run a method, seed 1." in comparison_markdown(rows)


def test_unknown_metrics_are_shown_under_their_names() -> None:
    row = made("a", 1, 0.4) | {"metrics": {"ign_f1": 0.5}}
    assert "| ign_f1 |" in comparison_markdown([row])


def test_nothing_to_compare() -> None:
    assert "No runs." in comparison_markdown([])


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_table(width: int) -> None:
    console = Console(width=width, record=True, file=StringIO())
    rows = [made("[red]a[/red]", s, 0.4 + s / 100, 0.5) for s in (1, 2)] + [
        made("b", s, 0.3, 0.4) for s in (1, 2)
    ]
    console.print(comparison_table(rows))
    text = console.export_text()
    assert "[red]a[/red]" in text  # a name is text, not markup
    assert "0.415 ± 0.007" in text
    assert "Sent to sites" not in text
    assert all(len(line) <= width for line in text.splitlines())
