"""The map of sites over rounds and the view of class vectors, against hand-worked cells."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.evaluation.heterogeneity import observe
from fedrel.runs.folder import read_run, run_so_far
from fedrel.runs.records import Refusal, Round, RunState, SiteRound
from fedrel.studio.figures import MOST
from fedrel.studio.site_views import Check, site_rounds, vector_view
from tests.studio.conftest import COUNTS, RELATIONS, SITES, write_classification, write_run


def rounds() -> list[Round]:
    return [
        Round(
            round=1, active=[0, 1], at_sites={0: SiteRound(loss=2.0, up=100), 1: SiteRound(loss=1.0, up=50)}
        ),
        Round(
            round=2,
            active=[1, 2],
            at_sites={1: SiteRound(loss=0.0, up=50), 2: SiteRound(loss=None, up=10)},
            refused=[Refusal(site=2, message="Update", reason="<b> is not finite")],
        ),
    ]


def seen(tmp_path, lines):
    state = RunState(phase="training", method="one", seed=1, rounds=9, metric="auc")
    return site_rounds(run_so_far(tmp_path, state, lines))


def test_cells_and_lines(tmp_path):
    view = seen(tmp_path, rounds())
    losses, refusals = view.plot.figure["data"]
    assert losses["z"] == [[1.0, None], [0.56, 0.12], [None, None]]  # 0.12 is the least loss, 1 the most
    assert refusals["z"] == [[None, None], [None, None], [None, 0.75]]
    assert losses["hovertext"][1][0] == "site 1, round 1: took part, loss 1.000, sent 50 B"
    assert losses["hovertext"][0][1] == "site 0, round 2: not drawn"
    assert refusals["hovertext"][2][1].endswith("refused: &lt;b&gt; is not finite")
    assert [(one.name, one.rounds, one.loss, one.up, one.refused) for one in view.lines] == [
        ("site 0", 1, 2.0, 100, 0),
        ("site 1", 2, 0.0, 100, 0),
        ("site 2", 1, None, 10, 1),
    ]


def test_many_rounds_share_columns_and_many_sites_are_chosen(tmp_path):
    lines = [
        Round(round=n, active=list(range(50)), refused=[Refusal(site=49, reason="late")] if n == 90 else [])
        for n in range(1, 91)
    ]
    view = seen(tmp_path, lines)
    axis = view.plot.figure["layout"]["xaxis"]
    assert len(axis["ticktext"]) == len(view.lines) == MOST
    assert axis["ticktext"][:2] == ["1 to 3", "4 to 6"]
    assert "site 49" in [one.name for one in view.lines], "a site with refusals is always shown"
    assert "Shown are 30 of 50 sites." in view.plot.note
    assert view.plot.figure["data"][0]["hovertext"][0][0] == "site 0, round 1 to 3: took part in 3 of 3"


def test_names_and_metric_of_a_finished_run(tmp_path):
    view = site_rounds(read_run(write_classification(tmp_path / "run")))
    assert [(one.name, one.value) for one in view.lines] == [("north", 0.5), ("south", 0.25), ("east", 0.75)]
    assert view.metric == "f1"


def test_names_of_real_sites(tmp_path):
    sites = [{"name": name} for name in ("north", "south", "west")]
    (tmp_path / "federation.json").write_text(json.dumps({"sites": sites}))
    assert [one.name for one in seen(tmp_path, rounds()).lines] == ["north", "south", "west"]


@pytest.mark.parametrize("active", [[], [0]])
def test_one_place_has_no_map(tmp_path, active):
    assert seen(tmp_path, [Round(round=1, active=active)]) is None
    assert seen(tmp_path, []) is None


def test_a_run_of_before_has_no_losses(tmp_path):
    view = site_rounds(read_run(write_run(tmp_path / "run")))
    assert {one.up for one in view.lines} == {None}
    assert view.plot.figure["data"][0]["z"][0][0] == 0.5


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
