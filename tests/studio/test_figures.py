"""Figures as plotly takes them: lines, bars, means over runs, and heat maps."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.evaluation.outcome import Curve
from fedrel.studio import figures
from fedrel.studio.figures import OTHERS, Layer, Series

TWO = [Series("a", 0, [1, 2], [0.1, math.nan], [0.01, 0.02]), Series("b", 8, [1, 2], [0.2, 0.3], strong=True)]

LAYER = Layer(np.array([[0.5, np.nan, 1.0]]), [["<b>", "hidden", "1"]], [["a", "b", "<c>"]])


@pytest.mark.parametrize(
    "figure",
    [
        figures.by_round(figures.lines(TWO, "Round", "AUC", marked=2), rounds=2),
        figures.precision_recall(TWO),
        figures.stacked_bytes([1, 2], {"Update": [5, 6], "Claims": [0, 0]}, top=6),
        figures.stacked_bytes([1], {"Update": [0]}, top=0),
        figures.grouped_bytes(["a", "b"], {"up": [1, 2], "down": [3, 4]}),
    ],
)
def test_plotly_accepts_every_figure(figure: figures.Figure) -> None:
    go.Figure(figure)  # raises for a property that plotly does not know or a value it does not take


def test_what_is_not_finite_is_a_gap() -> None:
    band, line, _ = figures.lines(TWO, "x", "y")["data"]
    assert line["y"] == [0.1, None]
    assert band["y"] == [pytest.approx(0.11), None, None, pytest.approx(0.09)]
    assert band["x"] == [1, 2, 2, 1]


def test_series_past_the_palette_differ_by_dash() -> None:
    *_, second = figures.lines(TWO, "x", "y")["data"]
    assert second["line"] == {"color": "var(--series-2)", "width": 3, "dash": "dash"}


def test_names_are_text() -> None:
    figure = figures.lines([Series("<b>&", 0, [1], [1])], "x", "y")
    assert figure["data"][0]["name"] == "&lt;b&gt;&amp;"  # plotly reads names as HTML


def test_a_mean_has_the_rounds_that_all_runs_have() -> None:
    """The last round of a run that patience ended is evaluated, too, off the others' schedule."""
    runs = [{20: 0.2, 40: 0.4, 50: 0.9}, {20: 0.4, 40: 0.4, 60: 0.5, 80: 0.6}]
    series = figures.mean_series("a", 0, runs)
    assert (series.x, series.cut) == ([20, 40], True)
    assert series.y == pytest.approx([0.3, 0.4])
    assert series.std == pytest.approx([math.sqrt(0.02), 0])
    unlike = figures.mean_series("a", 0, [{1: 0.2, 2: 0.4, 3: None}, {1: 0.4, 3: 0.1}])
    assert (unlike.x, unlike.cut) == ([1], False)


def test_a_mean_ends_with_the_shortest_run() -> None:
    """Otherwise it would be 0.45, 0.525, 0.62, 0.63, with a jump that no run has."""
    runs = [{10: 0.5, 20: 0.6, 30: 0.62, 40: 0.63}, {10: 0.4, 20: 0.45}]
    series = figures.mean_series("a", 0, runs)
    assert (series.x, series.cut) == ([10, 20], True)
    assert series.y == pytest.approx([0.45, 0.525])
    assert len(series.std) == 2
    alone = figures.mean_series("a", 0, runs[:1])
    assert (alone.x, alone.cut) == ([10, 20, 30, 40], False)
    assert figures.mean_series("a", 0, [{}, runs[1]]).x == [10, 20]
    assert figures.mean_series("a", 0, [{}]).y == []


def test_one_run_has_no_band() -> None:
    assert figures.mean_series("a", 0, [{1: 0.2}]).std == []


def test_mean_curve() -> None:
    one = Curve(recall=[0.0, 1.0], precision=[1.0, 0.0])
    two = Curve(recall=[0.0, 0.5], precision=[0.5, 0.5])
    recall, precision = figures.mean_curve([one, two], points=3)
    assert recall == [0, 0.25, 0.5]  # as far as both of them go
    assert precision == pytest.approx([0.75, 0.625, 0.5])
    assert figures.mean_curve([one]) == (one.recall, one.precision)


def test_the_rest_of_too_many_is_summed() -> None:
    counts = np.arange(40)
    order = figures.most_frequent(counts)
    assert (len(order), order[0], order[-2], order[-1]) == (figures.MOST, 39, 11, OTHERS)
    assert figures.merged(counts[None], order, 1)[0].tolist() == [*range(39, 10, -1), sum(range(11))]
    assert figures.names_of([f"r{n}" for n in range(40)], order)[-2:] == ["r11", "11 others"]


def test_few_are_only_put_in_order() -> None:
    table = np.array([[1, 2], [3, 4], [5, 6]])
    order = figures.most_frequent(table.sum(axis=1))
    assert order == [2, 1, 0]
    assert figures.merged(table, order, 0).tolist() == [[5, 6], [3, 4], [1, 2]]
    assert figures.names_of(["a", "b", "c"], order) == ["c", "b", "a"]


def test_cells_of_another_layer_are_gaps() -> None:
    trace = figures.heat_map([LAYER], ["row"], ["x", "y", "z"], "", "")["data"][0]
    assert trace["z"] == [[0.5, None, 1.0]]
    assert trace["text"] == [["&lt;b&gt;", "", "1"]]  # plotly reads texts as HTML
    assert trace["hovertext"][0][2] == "&lt;c&gt;"


def test_names_that_are_shortened_to_the_same_keep_their_places() -> None:
    long = ["a" * 20 + str(n) + "b" * 20 for n in range(3)]
    axis = figures.heat_map([LAYER], ["row"], long, "", "")["layout"]["xaxis"]
    assert axis["tickvals"] == [0, 1, 2]
    assert len(set(axis["ticktext"])) == 1


@pytest.mark.parametrize("columns", [2, 12, 30])
def test_plotly_accepts_it_whatever_its_size(columns: int) -> None:
    cells = np.linspace(0, 1, 2 * columns).reshape(2, columns)
    text = [[""] * columns] * 2
    names = [f"relation {n}" for n in range(columns)]
    layers = [Layer(cells, text, text), Layer(cells, text, text, "warm", small_show=True)]
    go.Figure(figures.heat_map(layers, ["a", "b"], names, "y", "x"))
    height, width = figures.size(["a", "b"], names)
    assert 8 < height < 30
    assert 12 < width < 90
