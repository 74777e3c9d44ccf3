"""What is written is what is read; and when a run reached its target."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fedrel.evaluation.outcome import AtSites, Curve
from fedrel.runs.folder import MetricsFile, read_json, write_json
from fedrel.runs.records import Reached, Refusal, Result, Round, RoundTraffic, Traffic, to_target


def rounds(*values: float | None) -> list[Round]:
    """A run whose round n sends n bytes up and 10n down."""
    return [
        Round(
            round=n,
            dev=None if f1 is None else {"f1": f1, "auc": 0.0},
            bytes=RoundTraffic(up=n, down=10 * n),
        )
        for n, f1 in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([0.1, 0.5, 0.4, 0.9], 0.5, (2, 3, 30)),  # reaching is enough, and a later fall does not matter
        ([0.1, None, 0.6], 0.5, (3, 6, 60)),  # a round without evaluation still counts and sends
        ([0.1, None], 0.5, None),
        ([], 0.5, None),
        ([0.0], 0.0, (1, 1, 10)),
        ([float("nan"), 0.5], 0.5, (2, 3, 30)),
    ],
)
def test_to_target(values: list[float | None], target: float, expected: tuple[int, int, int] | None) -> None:
    found = to_target(rounds(*values), "f1", target)
    assert (found and (found.round, found.up, found.down)) == expected
    assert to_target(rounds(*values), "auc", 0.1) is None


def test_what_was_reached_has_names() -> None:
    assert to_target(rounds(1.0), "f1", 0.5) == Reached(round=1, up=1, down=10)


WHOLE = Round(
    round=1,
    loss=0.5,
    dev={"auc": 0.25},
    bytes=RoundTraffic(up=7, down=9, framing=Traffic(up=1, down=2), by_kind={"Update": Traffic(up=7)}),
    seconds=1.5,
    selection_precision=0.75,
    active=[2, 4],
    examples=30,
    refused=[Refusal(site=4, message="Update", reason="it is too large")],
    watched={12: 0.5, 3: 1.0},
    class_distances={2: [0.5, -0.25]},
)


def test_a_round_reads_back_as_itself_under_the_documented_names(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(WHOLE)
    written = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert written == {
        "round": 1,
        "loss": 0.5,
        "dev": {"auc": 0.25},
        "bytes": {
            "up": 7,
            "down": 9,
            "framing": {"up": 1, "down": 2},
            "by_kind": {"Update": {"up": 7, "down": 0}},
        },
        "seconds": 1.5,
        "selection_precision": 0.75,
        "active": [2, 4],
        "examples": 30,
        "refused": [{"site": 4, "message": "Update", "reason": "it is too large"}],
        "at_sites": {},
        "watched": {"12": 0.5, "3": 1.0},
        "class_distances": {"2": [0.5, -0.25]},
    }
    assert file.keep(1) == [WHOLE]


def test_rounds_after_the_checkpoint_and_a_line_cut_short_are_dropped(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    assert file.keep(0) == []
    for one in rounds(0.1, 0.2, 0.3):
        file.append(one)
    with (tmp_path / "metrics.jsonl").open("a") as text:
        text.write('{"round": 4, "lo')
    assert [one.round for one in file.keep(2)] == [1, 2]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2


def test_a_loss_that_is_not_a_number_is_kept(tmp_path: Path) -> None:
    """Training that diverged is for the user to see, in the report, too."""
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(Round(round=1, loss=float("nan")))
    assert math.isnan(file.keep(1)[0].loss or 0)
    assert math.isnan(file.keep(1)[0].loss or 0)


@pytest.mark.parametrize("precision", [0.1, 1 / 3, 5e-324, 1e300])
def test_numbers_are_kept_to_the_bit(tmp_path: Path, precision: float) -> None:
    write_json(tmp_path / "curve.json", Curve(precision=[precision], recall=[-precision]))
    assert read_json(Curve, tmp_path / "curve.json") == Curve(precision=[precision], recall=[-precision])


def test_a_result_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """One without the fields that came later, and with one that is gone."""
    old = {"method": "one", "seed": 1, "metrics": {"auc": 0.5}, "rounds": 2, "seconds": 3, "gone": True}
    (tmp_path / "result.json").write_text(json.dumps({**old, "bytes": {"up": 1, "down": 2}}))
    found = read_json(Result, tmp_path / "result.json")
    assert (found.primary, found.best_round, found.sites) == ("auc", None, None)


def test_values_at_sites_come_with_their_fairness() -> None:
    found = AtSites.of("f1", {"a": 0.25, "b": 0.75, "c": None})
    assert found.fairness is not None
    assert (found.fairness.mean, found.fairness.worst_site, found.fairness.measured) == (0.5, "a", 2)
