"""The map of sites over rounds, against hand-worked cells."""

from __future__ import annotations

import json

import pytest

from fedrel.runs.folder import read_run, run_so_far
from fedrel.runs.records import Refusal, Round, RunState, SiteRound
from fedrel.studio.heatmaps import MOST
from fedrel.studio.site_rounds import site_rounds
from tests.studio.conftest import write_classification, write_run


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
