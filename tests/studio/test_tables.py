from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedrel.runs.folder import read_run
from fedrel.runs.records import ComparisonRow, Reached
from fedrel.studio.tables import comparison_markdown, comparison_table, summarise
from tests.studio.conftest import write_classification


def made(
    method: str, seed: int, auc: float, chosen: float | None = None, up: int = 2_000_000, **more: Any
) -> ComparisonRow:
    """A ranking."""
    fields = {
        "method": method,
        "seed": seed,
        "metrics": {"auc": auc, "max_f1": auc / 2},
        "rounds": 10,
        "bytes": {"up": up, "down": 1500},
        "seconds": 75.0,
        "selection_precision": chosen,
        "per_site_and_round": None,
        "target": None,
        "to_target": None,
        "sites": None,
    }
    return ComparisonRow.model_validate(fields | more)


def classified(
    method: str, seed: int, f1: float, reached: dict[str, int] | None, worst: float = 0.2
) -> ComparisonRow:
    return made(
        method,
        seed,
        0.0,
        metrics={"f1": f1, "precision": f1, "recall": f1},
        per_site_and_round={"up": 5000.0, "down": 400_000.0, "framing": 80.0},
        target={"f1": 0.72},
        to_target=reached,
        sites={"metric": "f1", "worst": worst, "spread": 0.05},
    )


def test_rows_are_the_results(comparison: dict[str, list[Path]]) -> None:
    for method, folders in comparison.items():
        for folder in folders:
            run = read_run(folder)
            result, row = run.result, run.row(method)
            assert (row.method, row.seed) == (method, result.seed)
            assert row.metrics == result.metrics
            assert row.bytes == result.bytes
            assert (row.rounds, row.seconds) == (result.rounds, result.seconds)
            assert row.selection_precision == result.selection_precision
            assert (row.target, row.to_target, row.sites) == (None, None, None)


def test_rows_of_a_classification(tmp_path: Path) -> None:
    """Four rounds with two active sites each; each round's framing is 400 B up."""
    run = read_run(write_classification(tmp_path / "run"))
    row = run.row("fedcmc")
    assert row.model_dump()["per_site_and_round"] == {
        "up": run.result.bytes.up / 8,
        "down": run.result.bytes.down / 8,
        "framing": 200.0,
    }
    assert row.target == {"f1": 0.3}
    assert row.to_target == Reached(round=3, up=3000, down=6000)
    assert row.model_dump()["sites"] == {
        "metric": "f1",
        "worst": 0.25,
        "spread": pytest.approx((1 / 24) ** 0.5),
    }


def test_markdown_by_hand() -> None:
    rows = [made("a|b", 1, 0.40, 0.5), made("a|b", 2, 0.44, 0.7), made("c", 1, 0.30), made("c", 2, 0.30)]
    assert comparison_markdown(rows) == (
        "| method | AUC | Max F1 | Selection precision | Rounds | Sent by sites | Sent to sites | Time |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| a\\|b | **0.420 ± 0.028** | **0.210 ± 0.014** | 0.600 ± 0.141 | 10 | 2.0 MB | 1.5 kB | 1 min 15 s |\n"
        "| c | 0.300 ± 0.000 | 0.150 ± 0.000 | — | 10 | 2.0 MB | 1.5 kB | 1 min 15 s |\n"
        "\n"
        "| method | Sent by sites a round | Sent to sites a round |\n"
        "| --- | ---: | ---: |\n"
        "| a\\|b | 200 kB | 150 B |\n"
        "| c | 200 kB | 150 B |\n"
        "\nMean ± standard deviation over seeds 1 and 2.\n"
    )


def test_markdown_of_classifications() -> None:
    rows = [
        classified("feded", 1, 0.7, {"round": 9, "up": 45_000, "down": 1_000_000}, worst=0.4),
        classified("feded", 2, 0.8, {"round": 7, "up": 35_000, "down": 1_000_000}, worst=0.3),
        classified("moon", 1, 0.75, {"round": 12, "up": 9_000_000, "down": 9_000_000}),
        classified("moon", 2, 0.65, None),
        classified("fedavg", 1, 0.5, None),
        classified("fedavg", 2, 0.5, None),
    ]
    quality, traffic, _ = comparison_markdown(rows).split("\n\n")
    assert quality.splitlines()[0] == (
        "| method | F1 | Precision | Recall | Worst site | Spread over sites | Rounds | Sent by sites"
        " | Sent to sites | Time |"
    )
    assert quality.splitlines()[2].startswith(
        "| feded | **0.750 ± 0.071** | **0.750 ± 0.071** | **0.750 ± 0.071** | **0.350 ± 0.071** | 0.050 | 10 |"
    )
    assert traffic == (
        "| method | Sent by sites a round | Sent to sites a round | Sent by one site a round | Its framing"
        " | Sent to one site a round | Rounds to F1 0.72 | Sent by sites until then | Sent to sites until then |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| feded | 200 kB | 150 B | 5.0 kB | 80 B | 400 kB | 8 ± 1.4 | 40.0 kB ± 7.1 kB | 1.0 MB |\n"
        "| moon | 200 kB | 150 B | 5.0 kB | 80 B | 400 kB | 12 (1 of 2) | 9.0 MB (1 of 2) | 9.0 MB (1 of 2) |\n"
        "| fedavg | 200 kB | 150 B | 5.0 kB | 80 B | 400 kB | — | — | — |"
    )


def test_three_seeds_have_a_median() -> None:
    rounds = [{"round": 9, "up": 1, "down": 1}, None, {"round": 5, "up": 1, "down": 1}]
    rows = [classified("a", n, f1, rounds[n - 1]) for n, f1 in ((1, 0.9), (2, 0.2), (3, 0.7))]
    rows += [classified("b", n, 0.5, None) for n in (1, 2, 3)]
    summary = summarise(rows)
    f1, to_target = summary.column("median_f1"), summary.column("median_target_round")
    assert (
        f1 is not None
        and f1.label == "Median F1"
        and [column.name for column in summary.columns][:2] == ["f1", "median_f1"]
    )
    assert (f1.text("a"), f1.text("b"), f1.best) == ("0.700", "0.500", {"a"})
    assert to_target is not None and to_target.label == "Median rounds to F1 0.72"
    assert (to_target.text("a"), to_target.text("b")) == (
        "9",
        "—",
    )  # a run that never was there counts as the last
    assert summarise(rows[:2]).column("median_f1") is None


def test_a_target_that_nobody_reached_is_still_shown() -> None:
    summary = summarise([classified("a", 1, 0.5, None)])
    column = summary.column("target_round")
    assert column is not None
    assert column.text("a") == "—"
    assert summarise([made("a", 1, 0.5)]).column("target_round") is None


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
    row = made("a", 1, 0.4, metrics={"kappa": 0.5})
    assert "| kappa |" in comparison_markdown([row])


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


def test_terminal_table_of_classifications_fits() -> None:
    rows = [classified(m, s, 0.6 + s / 100, None) for m in ("feded", "validation-only") for s in (1, 2)]
    console = Console(width=80, record=True, file=StringIO())
    console.print(comparison_table(rows))
    text = console.export_text()
    assert all(name in text for name in ("F1", "Precision", "Recall", "0.615 ± 0.007"))
    assert all(len(line) <= 80 for line in text.splitlines())
