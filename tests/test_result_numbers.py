"""The numbers of README and docs are those of the pages under `results/`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from fedrel.config.papers import find_exhibit
from fedrel.runs.folder import read_json
from fedrel.runs.records import PrivacyTable
from fedrel.runs.reproduction_record import Reproduction

ROOT = Path(__file__).parents[1]

# Names of rows in the docs that pages have others for.
ROWS = {
    "lazy-one (ours)": "lazy-one",
    "lazy-mil with winners drawn at random (a control)": "lazy-mil, random winners",
    "lazy-mil with the released code's pooled winners": "lazy-mil, pooled winners",
    "one with as many steps as that": "one, steps of pooled winners",
}
EVEN, SKEWED = "CPR, alpha=0.5, K=10", "CPR, alpha=0.05, K=10"
MINUS = "\N{MINUS SIGN}"
WORLD = [column.name for column in find_exhibit(f"{ROOT}/benchmarks/noise.toml/world")[1].columns]
RESULTS = "docs/results.md"
NOISE = "docs/noise.md"
FEDCMC = "FedCMC on CPR and PGR"
FEDLCC = "FedLCC on CDR, GDA and CHR"


def record(page: str) -> Reproduction:
    found: Reproduction = read_json(Reproduction, ROOT / "results" / page / "reproduction.json")
    return found


def from_json(file: str) -> Any:
    return json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))


def table(file: str, heading: str, below: str = "", having: str = "") -> list[dict[str, str]]:
    """The first table below a heading, or below words of its section, that has this column: cells by column."""
    text = (ROOT / file).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for block in text[text.index(below) :].split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        head, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines or ["|"])
        if lines and (not having or having in head):
            return [dict(zip(head, row, strict=True)) for row in rows[1:]]
    raise LookupError(f"{file}, {heading}: no table has the column {having!r}")


@pytest.mark.parametrize(
    ("file", "heading", "column", "page", "of", "spread"),
    [
        (RESULTS, "Lazy MIL on NYT10", "AUC", "lazy_mil-table2", "C=0.1", True),
        (RESULTS, "FedED on GAD and EU-ADR", "GAD F1", "feded-table3", "GAD", False),
        (RESULTS, "FedED on GAD and EU-ADR", "EU-ADR F1", "feded-table4", "EU-ADR", False),
        *(
            (RESULTS, FEDCMC, f"{corpus}, alpha {alpha}", page, f"{corpus}, alpha={alpha}, K=10", False)
            for corpus in ("CPR", "PGR")
            for alpha, page in (("0.05", "fedcmc-table2-pcnn-skewed"), ("0.5", "fedcmc-table2-pcnn"))
        ),
        (RESULTS, FEDLCC, "F1", "fedlcc-table3", "IID", False),
        (RESULTS, FEDLCC, "F1, sites by entropy", "fedlcc-table3", "by entropy", False),
        (RESULTS, FEDLCC, "GDA", "fedlcc-table5", "IID", False),
        (RESULTS, FEDLCC, "CHR", "fedlcc-table4", "IID", False),
        *((NOISE, "Over noise rates", name, "world-noise", name, False) for name in WORLD),
    ],
)  # fmt: skip
def test_a_table_of_the_docs_has_the_numbers_of_its_page(
    file: str, heading: str, column: str, page: str, of: str, spread: bool
) -> None:
    cells = {
        cell.row: [run.value for run in cell.runs if run.value is not None]
        for cell in record(page).cells
        if cell.column == of
    }
    checked = 0
    for line in table(file, heading, having=column):
        row = next(iter(line.values()))
        if not line[column]:
            assert not cells.get(row)
            continue
        values = cells[ROWS.get(row, row)]
        expected = f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if spread else "")
        assert line[column].replace("**", "") == expected, row
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    ("claim", "page", "of", "better", "worse", "digits"),
    [
        ("FedED ahead of FedAvg (Table 3", "feded-table3", "GAD", "feded", "fedavg", 1),
        ("the same on EU-ADR", "feded-table4", "EU-ADR", "feded", "fedavg", 1),
        ("Lazy MIL ahead of ONE (Table 2", "lazy_mil-table2", "C=0.1", "lazy-mil", "one", 3),
        ("the same with all sites active", "lazy_mil-table2", "C=1.0", "lazy-mil", "one", 3),
        ("the same with MiniLM (Table 5", "lazy_mil-table5", "NYT10", "lazy-mil", "one", 3),
        ("FedCMC ahead of FedAvg (Table 2, CPR", "fedcmc-table2-pcnn", EVEN, "fedcmc", "fedavg", 1),
        ("the same on PGR, alpha 0.5", "fedcmc-table2-pcnn", EVEN.replace("CPR", "PGR"), "fedcmc", "fedavg", 1),
        ("the same at alpha 0.05", "fedcmc-table2-pcnn-skewed", SKEWED, "fedcmc", "fedavg", 1),
        ("the same with MiniLM, 1,000", "fedcmc-table2-small", SKEWED, "fedcmc", "fedavg", 1),
        ("FedLCC ahead of FedAvg (Table 3", "fedlcc-table3", "IID", "fedlcc", "fedavg", 1),
        ("the same on CHR's dev file", "fedlcc-table4", "IID", "fedlcc", "fedavg", 1),
    ],
)  # fmt: skip
def test_a_claim_of_the_readme_is_the_ordering_of_its_page(
    claim: str, page: str, of: str, better: str, worse: str, digits: int
) -> None:
    found = record(page)
    (ordering,) = (
        one for one in found.orderings if (one.column, one.better, one.worse) == (of, better, worse)
    )
    (line,) = (one for one in table("README.md", "What reproduces") if one["claim"].startswith(claim))

    def shown(value: float) -> str:
        text = f"{value * (found.scale if digits == 1 else 1):+.{digits}f}".replace("-", MINUS)
        return text.replace("0.", ".", 1) if digits == 3 else text

    assert ordering.ours is not None
    ours = ordering.ours
    cells = [cell for cell in found.cells if cell.column == of and cell.row in (better, worse)]
    late = "" if all(run.converged for cell in cells for run in cell.runs) else " †"
    interval = f"[{shown(ours.low)}, {shown(ours.high)}]"
    assert line["here, with 95 % interval"] == f"{shown(ours.mean)} {interval}{late}"
    assert line["in the paper"] == shown(ordering.paper / (found.scale if digits == 1 else 1))
    assert line[""].startswith(ordering.verdict)


def test_tables_of_the_five_laboratories_are_of_their_runs() -> None:
    page, heading = "results/ppi-natural-sites/README.md", "F1 on each site's own test part"
    runs = from_json("ppi-natural-sites/comparison.json")["rows"]
    own = from_json("ppi-natural-sites/site-thresholds.json")
    without = from_json("ppi-natural-sites/without-text.json")
    at_half, tuned = table(page, heading), table(page, heading, "The same models, with a threshold")

    def shown(value: float) -> str:
        return f"{value:.3f}".removeprefix("0")

    for site, facts in without.items():
        lines = {line[""]: line[site] for line in at_half}
        assert lines.pop("training rows") == f"{facts['train']:,}"
        assert lines.pop("test rows") == f"{facts['test']:,}"
        assert lines.pop('always "yes"') == shown(facts["always_yes_f1"])
        assert lines.pop("lengths and counts only") == shown(facts["lengths_and_counts_f1"])
        assert lines.keys() == {line[""] for line in tuned}
        for line in tuned:
            method = line[""]
            values = [run["sites"][site] for run in runs if run["method"] == method]
            assert lines[method] == f"{shown(fmean(values))} ± {shown(stdev(values))}"
            values = [run[site]["own_f1"] for run in own[method].values()]
            assert line[site] == f"{shown(fmean(values))} ± {shown(stdev(values))}"


def test_the_table_of_attacks_over_three_seeds_is_of_their_runs() -> None:
    runs = {
        (number, one["attack"], one["defence"]): one["value"]
        for number, folder in ((1, ""), (2, "seed-2/"), (3, "seed-3/"))
        for one in from_json(f"attacks/{folder}attacks.json")["cells"]
        if one["liars"] in (0, 4)
    }
    lines = table("results/attacks/README.md", "Three seeds")
    assert len(lines) == 9
    for line in lines:
        attack, undefended, _ = line["attack"].partition(" (no defence)")
        defence = "none" if undefended else "remembering"
        values = [runs[number, attack, defence] for number in (1, 2, 3)]
        assert [line[f"seed {number}"] for number in (1, 2, 3)] == [
            f"{value:.4f}".removeprefix("0") for value in values
        ]
        lost = fmean(runs[number, "none", "none"] for number in (1, 2, 3)) - fmean(values)
        assert line["mean loss"] == f"{lost:.4f}".removeprefix("0"), attack


@pytest.mark.parametrize(
    ("row", "folder"),
    [
        ("AUC: the world, 1,000 sites, 200 a round: a **site** is hidden", "world-sites"),
        ("AUC: NYT10's part, 500 sites, 100 a round: a **site** is hidden", "nyt10-part-sites"),
        ("AUC: the world, 20 sites: a **sentence** is hidden", "world"),
        ("AUC: NYT10's part, 10 sites: a **sentence** is hidden", "nyt10-part"),
        ("F1: GAD, 2 sites, MiniLM with LoRA: a **sentence** is hidden", "gad-lora"),
    ],
)
def test_what_privacy_costs_is_of_its_runs(row: str, folder: str) -> None:
    found: PrivacyTable = read_json(PrivacyTable, ROOT / "results" / "privacy" / folder / "privacy.json")
    lines = table("docs/differential-privacy.md", "What it costs", having="at ε")
    (line,) = (one for one in lines if one.pop("at ε") == row)
    for target, shown in line.items():
        values = [one.value for one in found.chosen(None if target == "∞" else float(target))]
        assert shown == f"{fmean(value for value in values if value is not None):.3f}"


def test_how_often_the_same_sentence_wins_is_of_its_runs() -> None:
    runs = from_json("lazy_mil-table2/winners.json")["runs"]
    said = " ".join((ROOT / "results/lazy_mil-table2/reading.md").read_text(encoding="utf-8").split())
    chosen, random = ({c: runs[f"C={c}, {how}"] for c in ("0.1", "1.0")} for how in ("probability", "random"))
    assert f"{chosen['1.0']['same_again']:.1%} of the winners".replace("%", " %") in said
    assert f"{chosen['1.0']['won_so_far']:.0%} of the training sentences".replace("%", " %") in said
    again = f"{chosen['0.1']['same_again']:.0%} win again (at random {random['0.1']['same_again']:.0%})"
    assert f"{again} and {chosen['0.1']['won_so_far']:.0%} have won".replace("%", " %") in said
    at_random = f"at C = 1 {random['1.0']['same_again']:.0%} and {random['1.0']['won_so_far']:.0%}"
    assert f"with random winners {at_random}".replace("%", " %") in said
