"""Who gains by taking part: against hand-worked changes over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.evaluation.outcome import AtSites, Classes, ClassScores, Confusion
from fedrel.runs.folder import Run, read_run
from fedrel.runs.records import LabelCounts, Result, Traffic
from fedrel.studio.breakdown import class_comparison, class_view, gains, site_plot, site_strips
from tests.studio.conftest import write_classification


def made(counts: list[list[int]]) -> Classes:
    names = [f"r{n}" for n in range(len(counts))]
    rows = [
        ClassScores(relation=name, precision=0.5, recall=0.5, f1=0.5, support=sum(row))
        for name, row in zip(names, counts, strict=True)
    ]
    return Classes(per_class=rows, confusion=Confusion(relations=names, counts=counts))


def test_relations_stand_by_their_frequency() -> None:
    view = class_view(made([[1, 0], [4, 5]]))
    assert view is not None
    assert [row.relation for row in view.rows] == ["r1", "r0"]
    assert not view.wide


def test_confusion_by_hand() -> None:
    """Frequencies 10, 4, 2 keep their order; what is right and what is not are two layers of shares of a row."""
    view = class_view(made([[8, 2, 0], [1, 3, 0], [2, 0, 0]]))
    assert view is not None
    assert view.confusion is not None
    wrong, right = view.confusion.figure["data"]
    assert right["z"] == [[0.8, None, None], [None, 0.75, None], [None, None, 0.0]]
    assert wrong["z"] == [[None, 0.2, 0.0], [0.25, None, 0.0], [1.0, 0.0, None]]
    assert right["text"] == [["8", "", ""], ["", "3", ""], ["", "", ""]]
    assert wrong["hovertext"][1][0] == "r1 found as r0: 1, 25% of the row"
    assert "The most frequent mistake is r0 found as r1: 2 times." in view.confusion.note
    assert "69% of the test sentences" in view.confusion.alt
    go.Figure(view.confusion.figure)


def test_sixty_relations_are_the_most_frequent_and_others() -> None:
    counts = np.diag(np.arange(60, 0, -1))
    counts[:, 0] += 1
    view = class_view(made(counts.tolist()))
    assert view is not None
    assert view.confusion is not None
    assert view.wide
    _, right = view.confusion.figure["data"]
    names = view.confusion.figure["layout"]["yaxis"]["ticktext"]
    assert (len(names), names[0], names[-1]) == (30, "r0", "31 others")
    assert right["text"][-1][-1] == str(sum(range(1, 32)))
    assert "rarest relations share the last row" in view.confusion.note


@pytest.mark.parametrize("counts", [[[0, 0], [0, 0]], []])
def test_nothing_tested_is_no_matrix(counts: list[list[int]]) -> None:
    view = class_view(made(counts))
    assert view is not None
    assert view.confusion is None


def test_nothing_confused() -> None:
    view = class_view(made([[3, 0], [0, 2]]))
    assert view is not None
    assert view.confusion is not None
    assert "Nothing is confused." in view.confusion.alt


def test_methods_by_relation_are_means_over_seeds(tmp_path: Path) -> None:
    runs = {
        method: [
            read_run(write_classification(tmp_path / f"{method}-{seed}", method, seed)) for seed in (1, 2)
        ]
        for method in ("fedavg", "fedcmc")
    }
    plot = class_comparison(runs)
    assert plot is not None
    trace = plot.figure["data"][0]
    assert trace["z"][0] == trace["z"][1] == [0.8247, 0.6292, 0.0]  # 160/194, 56/89, and none found
    assert plot.figure["layout"]["yaxis"]["ticktext"] == ["fedavg", "fedcmc"]
    assert class_comparison({"fedavg": runs["fedavg"]}) is None


def at_sites(values: dict[str, float | None]) -> AtSites:
    return AtSites.of("f1", values)


def test_bars_go_from_the_worst_to_the_best() -> None:
    plot = site_plot(at_sites({"a": 0.5, "<b>": 0.1, "c": None, "d": 0.9}))
    assert plot is not None
    bars = plot.figure["data"][0]
    assert bars["y"] == [0.1, 0.5, 0.9]
    assert bars["marker"]["color"] == ["var(--series-2)", "var(--series-1)", "var(--series-1)"]
    assert plot.figure["layout"]["xaxis"]["ticktext"] == ["&lt;b&gt;", "a", "d"]
    assert plot.figure["layout"]["shapes"][0]["y0"] == 0.5
    assert "The worst is <b>, 0.100." in plot.alt
    assert "1 more had nothing in its share" in plot.note
    go.Figure(plot.figure)


def test_sites_that_share_the_worst_are_counted() -> None:
    plot = site_plot(at_sites({"a": 0.0, "b": 0.0, "c": 0.3}))
    assert plot is not None
    assert "2 sites share the worst, 0.000." in plot.alt
    assert "more had nothing" not in plot.note


def test_many_sites_are_not_named() -> None:
    plot = site_plot(at_sites({f"site-{n}": n / 100 for n in range(100)}))
    assert plot is not None
    assert plot.figure["layout"]["xaxis"]["showticklabels"] is False
    assert plot.figure["data"][0]["text"] is None
    go.Figure(plot.figure)


def test_nothing_measured_is_no_plot() -> None:
    assert site_plot(None) is None
    assert site_plot(at_sites({"a": None})) is None


def test_strips_have_a_dot_for_each_site_of_each_run(tmp_path: Path) -> None:
    def runs(method: str, **result: object) -> list[Run]:
        folders = [write_classification(tmp_path / f"{method}-{s}", method, s, **result) for s in (1, 2)]
        return [read_run(folder) for folder in folders]

    plot = site_strips({"fedavg": runs("fedavg"), "none": runs("none", sites=None), "moon": runs("moon")})
    assert plot is not None
    dots, mean, *_ = plot.figure["data"]
    assert dots["x"] == [0.5, 0.25, 0.75] * 2
    assert mean["x"] == [0.5, 0.5]
    assert plot.figure["layout"]["yaxis"]["ticktext"] == ["fedavg", "moon"]
    assert plot.figure["data"][2]["marker"]["color"] == "var(--series-3)"  # as on the page's other plots
    go.Figure(plot.figure)
    assert site_strips({"none": [read_run(tmp_path / "none-1")]}) is None


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
