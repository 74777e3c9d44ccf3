"""What open pages are told: rows of the list that changed, and a run's new rounds."""

from __future__ import annotations

from threading import Lock

from fedrel.studio.live.page_maker import Remarks
from fedrel.studio.live.run_index import RunIndex
from fedrel.studio.live.run_pages import ListWatch, RunWatch
from tests.studio.conftest import write_run
from tests.studio.live.conftest import add_round, trained_in, write_state, write_unfinished


def test_the_list_tells_what_changed(tmp_path):
    write_run(tmp_path / "first")
    index, remarks = RunIndex(tmp_path), Remarks(tmp_path)
    index.scan()
    watch = ListWatch(index, remarks, Lock())
    assert watch() is None
    write_unfinished(tmp_path / "<b>second")
    remarks.keep("first", "", ["good"])
    event = watch()
    assert set(event["rows"]) == {"first", "<b>second"}
    assert "&lt;b&gt;second" in event["rows"]["<b>second"] and "<b>" not in event["rows"]["<b>second"]
    assert "good" in event["rows"]["first"]
    assert "2 runs: 1 finished and 1 stopped." in event["parts"]["lead"]


def test_a_run_tells_of_its_new_rounds_then_of_its_end(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_state(run, "training", rounds=5)
    index = RunIndex(tmp_path)
    with trained_in(run):
        index.scan()
        watch = RunWatch(index, "run", Lock())
        assert watch()["plots"] == {}
        assert watch() is None
        for number in (1, 2):
            add_round(run, number, number / 10)
        event = watch()
        (line,) = event["plots"]["AUC on the development set"]["data"]
        assert (line["x"], line["y"]) == ([1, 2], [0.1, 0.2])
        assert event["plots"]["AUC on the development set"]["layout"]["xaxis"]["range"] == [0.5, 5.5]
        assert "2 of 5" in event["parts"]["tiles"] and "round 2 of 5" in event["parts"]["banner"]
        assert {"Training loss", "Sites, round by round", "Sent by the sites"} <= set(event["plots"])
        assert watch() is None
    assert "stopped, round 2 of 5" in watch()["parts"]["banner"]
    write_run(tmp_path / "other")
    for name in ("result.json",):
        (tmp_path / "other" / name).rename(run / name)
    write_state(run, "finished", rounds=5)
    assert watch() == {"reload": True}


def test_a_round_that_is_written_between_two_looks_is_told_of_in_full(tmp_path, monkeypatch):
    """The folder is looked at, then a round is added, then the rounds are read: the next look tells the rest."""
    run = tmp_path / "run"
    run.mkdir()
    write_state(run, "training", rounds=5)
    index = RunIndex(tmp_path)
    with trained_in(run):
        index.scan()
        watch = RunWatch(index, "run", Lock())
        watch()
        add_round(run, 1, 0.1)
        look_at = index.look_at

        def then_a_round(identity):
            row = look_at(identity)
            add_round(run, 2, 0.2)
            return row

        with monkeypatch.context() as patched:
            patched.setattr(index, "look_at", then_a_round)
            event = watch()
        assert len(event["plots"]["AUC on the development set"]["data"][0]["x"]) == 2
        assert "round 1 of 5" in event["parts"]["banner"]
        assert "round 2 of 5" in watch()["parts"]["banner"]
        assert watch() is None
