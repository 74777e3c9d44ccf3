from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from fedrel.evaluation.outcome import AtSites
from fedrel.runs.folder import Run, read_run
from fedrel.studio.site_view import site_plot, site_strips
from tests.studio.conftest import write_classification


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
