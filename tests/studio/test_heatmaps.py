from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.studio import heatmaps
from fedrel.studio.heatmaps import OTHERS, Layer

LAYER = Layer(np.array([[0.5, np.nan, 1.0]]), [["<b>", "hidden", "1"]], [["a", "b", "<c>"]])


def test_the_rest_of_too_many_is_summed() -> None:
    counts = np.arange(40)
    order = heatmaps.most_frequent(counts)
    assert (len(order), order[0], order[-2], order[-1]) == (heatmaps.MOST, 39, 11, OTHERS)
    assert heatmaps.merged(counts[None], order, 1)[0].tolist() == [*range(39, 10, -1), sum(range(11))]
    assert heatmaps.names_of([f"r{n}" for n in range(40)], order)[-2:] == ["r11", "11 others"]


def test_few_are_only_put_in_order() -> None:
    table = np.array([[1, 2], [3, 4], [5, 6]])
    order = heatmaps.most_frequent(table.sum(axis=1))
    assert order == [2, 1, 0]
    assert heatmaps.merged(table, order, 0).tolist() == [[5, 6], [3, 4], [1, 2]]
    assert heatmaps.names_of(["a", "b", "c"], order) == ["c", "b", "a"]


def test_cells_of_another_layer_are_gaps() -> None:
    trace = heatmaps.heat_map([LAYER], ["row"], ["x", "y", "z"], "", "")["data"][0]
    assert trace["z"] == [[0.5, None, 1.0]]
    assert trace["text"] == [["&lt;b&gt;", "", "1"]]  # plotly reads texts as HTML
    assert trace["hovertext"][0][2] == "&lt;c&gt;"


def test_names_that_are_shortened_to_the_same_keep_their_places() -> None:
    long = ["a" * 20 + str(n) + "b" * 20 for n in range(3)]
    axis = heatmaps.heat_map([LAYER], ["row"], long, "", "")["layout"]["xaxis"]
    assert axis["tickvals"] == [0, 1, 2]
    assert len(set(axis["ticktext"])) == 1


@pytest.mark.parametrize("columns", [2, 12, 30])
def test_plotly_accepts_it_whatever_its_size(columns: int) -> None:
    cells = np.linspace(0, 1, 2 * columns).reshape(2, columns)
    text = [[""] * columns] * 2
    names = [f"relation {n}" for n in range(columns)]
    layers = [Layer(cells, text, text), Layer(cells, text, text, "warm", small_show=True)]
    go.Figure(heatmaps.heat_map(layers, ["a", "b"], names, "y", "x"))
    height, width = heatmaps.size(["a", "b"], names)
    assert 8 < height < 30
    assert 12 < width < 90
