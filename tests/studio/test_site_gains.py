"""Who gains by taking part: against hand-worked changes over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrel.evaluation.outcome import AtSites
from fedrel.runs.folder import Run
from fedrel.runs.records import LabelCounts, Result, Traffic
from fedrel.studio.site_gains import gains


def run(seed: int, natural: bool = True, **values: float | None) -> Run:
    sites = AtSites.of("f1", values).model_copy(
        update={"natural": natural, "rows": dict.fromkeys(values, 40)}
    )
    result = Result(
        method="m", seed=seed, metrics={"f1": 0.5}, rounds=1, bytes=Traffic(), seconds=1.0, sites=sites
    )
    counts = LabelCounts(sites=list(values), relations=["NA", "r"], counts=[[3, 4]] * len(values))
    rest: dict[str, Any] = {"curve": None, "classes": None, "cases": [], "documents": [], "config": ""}
    made: dict[str, Any] = dict.fromkeys(Run.__dataclass_fields__)
    made |= {
        **rest,
        "folder": Path(),
        "result": result,
        "rounds": [],
        "label_counts": counts,
        "environment": {},
    }
    return Run(**made)


def test_a_clear_change_is_a_gain_or_a_loss() -> None:
    alone = [run(1, a=0.4, b=0.6, c=0.5), run(2, a=0.5, b=0.5, c=0.5), run(3, a=0.6, b=0.7, c=0.5)]
    fedavg = [run(1, a=0.5, b=0.5, c=0.7), run(2, a=0.65, b=0.45, c=0.2), run(3, a=0.75, b=0.6, c=0.6)]
    found = gains({"local": alone, "fedavg": fedavg})
    assert found is not None and (found.metric, found.methods) == ("f1", ["local", "fedavg"])
    a, b, c = found.rows
    assert (a.site, a.trained, a.tested) == ("a", 7, 40)
    assert a.cells[0].spread is not None and a.cells[0].spread.mean == pytest.approx(0.5)
    assert (a.cells[0].change, a.cells[0].verdict) == (None, "")
    assert a.cells[1].change == pytest.approx((0.1 + 0.15 + 0.15) / 3) and a.cells[1].verdict == "gain"
    assert b.cells[1].change == pytest.approx(-(0.1 + 0.05 + 0.1) / 3) and b.cells[1].verdict == "loss"
    assert c.cells[1].change == pytest.approx(0.0) and c.cells[1].mark == "="
    assert found.said == [
        "With fedavg, against training alone: a (+0.133) gains; b (-0.083) loses; "
        "for c seeds differ more than the change."
    ]


def test_one_seed_tells_nothing_and_other_partitions_have_no_such_table() -> None:
    found = gains({"local": [run(1, a=0.4)], "fedavg": [run(1, a=0.9)]})
    assert found is not None and found.rows[0].cells[1].verdict == ""
    assert gains({"fedavg": [run(1, a=0.4)], "fedprox": [run(1, a=0.4)]}) is None
    assert gains({"local": [run(1, natural=False, a=0.4)], "fedavg": [run(1, natural=False, a=0.4)]}) is None


def test_a_site_without_a_value_has_no_change() -> None:
    found = gains({"local": [run(1, a=None)], "fedavg": [run(1, a=0.9)]})
    assert (
        found is not None and found.rows[0].cells[0].spread is None and found.rows[0].cells[1].change is None
    )
