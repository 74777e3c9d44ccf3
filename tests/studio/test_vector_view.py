from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.evaluation.heterogeneity import observe
from fedrel.runs.folder import read_run
from fedrel.studio.vector_view import Check, vector_view
from tests.studio.conftest import COUNTS, RELATIONS, SITES


def test_maps_show_labels_and_each_site_when_it_was_active(classification: Path) -> None:
    run = read_run(classification)
    view = vector_view(run)
    assert view is not None
    labels, first, last, _ = (plot.figure for plot in view.plots)
    assert labels["layout"]["yaxis"]["ticktext"] == list(SITES)
    assert labels["layout"]["xaxis"]["ticktext"] == RELATIONS
    assert labels["data"][0]["text"][1] == ["12", "30", ""]  # a gap for none
    assert labels["data"][0]["z"][2][1:] == [None, None]
    said = [[run.rounds[number].class_distances or {} for number in (a, b)] for a, b in ((0, 2), (1, 3))]
    for site, (start, end) in ((0, said[0]), (3, said[1])):
        assert first["data"][0]["text"][site] == [f"{value:.2f}" for value in start[site]]
        assert last["data"][0]["text"][site] == [f"{value:.2f}" for value in end[site]]
    for figure in (first, last):
        assert figure["data"][0]["z"][2] == [None] * 3  # the third site never was
        shades = [cell for row in figure["data"][0]["z"] for cell in row if cell is not None]
        assert (min(shades), max(shades)) == (0, 1)
    for plot in view.plots:
        go.Figure(plot.figure)


def test_observations_are_those_of_the_evaluation(classification: Path) -> None:
    run = read_run(classification)
    distances = np.full((4, 4, 3), np.nan)
    for one in run.rounds:
        for site, values in (one.class_distances or {}).items():
            distances[one.round - 1, site] = values
    seen = observe(distances, np.array(COUNTS))
    view = vector_view(run)
    assert view is not None
    assert [check.number for check in view.checks] == ["1", "2", "2", "3"]
    assert [check.value for check in view.checks] == pytest.approx(
        [seen.own[:3].mean(), seen.closing, seen.whole[-3:].mean(), seen.across.mean()], nan_ok=True
    )
    lines = view.plots[-1].figure["data"]
    assert lines[0]["y"] == pytest.approx(seen.own.tolist())
    assert lines[0]["x"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(-0.8, "holds"), (-0.05, "holds weakly"), (0.0, "does not hold"), (0.5, "does not hold"),
     (math.nan, "cannot be told")],
)  # fmt: skip
def test_verdicts(value: float, verdict: str) -> None:
    assert Check("1", "", "", value).verdict == verdict


def test_one_round_has_no_first_and_last(classification: Path) -> None:
    run = read_run(classification)
    view = vector_view(replace(run, rounds=run.rounds[:1]))
    assert view is not None
    assert len(view.plots) == 2


def test_of_many_sites_and_relations_the_largest_are_shown(classification: Path) -> None:
    run = read_run(classification)
    assert run.label_counts is not None
    counts = run.label_counts.model_copy(
        update={
            "sites": [f"s{n}" for n in range(50)],
            "relations": [f"r{n}" for n in range(40)],
            "counts": (np.arange(1, 51)[:, None] * np.arange(40, 0, -1)).tolist(),
        }
    )
    one = run.rounds[0].model_copy(update={"class_distances": {49: [n / 40 for n in range(40)]}})
    view = vector_view(replace(run, label_counts=counts, rounds=[one]))
    assert view is not None
    assert view.wide
    axes = view.plots[0].figure["layout"]
    assert axes["yaxis"]["ticktext"] == [f"s{n}" for n in range(20, 50)]
    assert axes["xaxis"]["ticktext"] == [f"r{n}" for n in range(30)]
    assert "the 30 largest of 50 sites and the 30 most frequent of 40 relations" in view.plots[0].note
    assert view.plots[1].figure["data"][0]["z"][-1][0] == 1  # the smallest d of all


def test_nothing_measured_is_no_view(classification: Path) -> None:
    run = read_run(classification)
    silent = [one.model_copy(update={"class_distances": None}) for one in run.rounds]
    assert vector_view(replace(run, rounds=silent)) is None
    assert vector_view(replace(run, label_counts=None)) is None
