"""What the list says of runs in every state, and that only what changed is read again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedrel.runs.folder import read_run, write_json
from fedrel.runs.records import ComparisonRows
from fedrel.studio.live import run_index
from fedrel.studio.live.run_index import RunIndex
from tests.studio.conftest import write_comparison, write_run
from tests.studio.live.conftest import add_round, trained_in, write_state, write_unfinished


def test_states(tmp_path):
    write_run(tmp_path / "done", seed=3, rounds=12)
    write_unfinished(tmp_path / "deep" / "er" / "killed")
    write_unfinished(tmp_path / "broke", "failed", message="round 13: no site answered")
    write_unfinished(tmp_path / "busy")
    (tmp_path / "new").mkdir()
    write_state(tmp_path / "new", "reading")
    index = RunIndex(tmp_path)
    with trained_in(tmp_path / "busy"), trained_in(tmp_path / "new"):
        index.scan()
    said = {row.id: row.said for row in index.rows}
    assert said == {
        "done": "finished",
        "deep/er/killed": "stopped, round 12 of 50",
        "broke": "failed, round 12 of 50",
        "busy": "round 12 of 50",
        "new": "reading",
    }
    assert index.row("broke").message == "round 13: no site answered"
    assert {row.id for row in index.rows[:2]} == {"busy", "new"}, "what goes on comes first"


def test_numbers_of_a_run_that_goes_on(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_state(run, "training", rounds=10)
    for number, auc in enumerate((0.1, 0.4, 0.3), 1):
        add_round(run, number, auc, seconds=number)
    index = RunIndex(tmp_path)
    with trained_in(run):
        index.scan()
        row = index.row("run")
        assert (row.round, row.value, row.up, row.down, row.seconds) == (3, 0.4, 3000, 9000, 6.0)
        assert row.left == 7 * 2.0  # rounds left, mean seconds of the last ones
        add_round(run, 4, 0.5, seconds=2)
        assert index.scan() == {"run"}
        assert (index.row("run").value, index.row("run").up) == (0.5, 4000)
        assert index.scan() == set()
    assert index.scan() == {"run"}  # the process has ended
    assert (index.row("run").state, index.row("run").left) == ("stopped", None)


def test_a_run_that_is_begun_anew_is_counted_anew(tmp_path):
    run = write_unfinished(tmp_path / "run")
    index = RunIndex(tmp_path)
    index.scan()
    (run / "metrics.jsonl").write_text("")
    add_round(run, 1, 0.2)
    index.scan()
    assert (index.row("run").round, index.row("run").value, index.row("run").up) == (1, 0.2, 1000)


def test_a_torn_last_line_counts_when_it_is_whole(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_state(run, "training")
    add_round(run, 1, 0.2)
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole + whole.replace('"round": 1', '"round": 2')[:40])
    index = RunIndex(tmp_path)
    index.scan()
    assert index.row("run").round == 1
    (run / "metrics.jsonl").write_text(whole + whole.replace('"round": 1', '"round": 2'))
    index.scan()
    assert (index.row("run").round, index.row("run").up) == (2, 2000)


def test_a_finished_run_is_read_once(tmp_path, monkeypatch):
    write_run(tmp_path / "run")
    index = RunIndex(tmp_path)
    index.scan()
    monkeypatch.setattr(run_index, "_finished", lambda *_: pytest.fail("read again"))
    assert index.scan() == set()


def test_of_a_long_file_the_end_is_read_first(tmp_path, monkeypatch):
    monkeypatch.setattr(run_index, "_TAIL", 2000)
    write_unfinished(tmp_path / "run", rounds=40)
    exact = RunIndex(tmp_path)
    exact.scan()
    first = exact.row("run")
    assert (first.round, first.exact, first.value, first.up) == (40, False, None, None)
    assert exact.scan() == set()  # and not again
    assert exact.complete() == {"run"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    row = exact.row("run")
    assert row.exact and row.up == sum(line["bytes"]["up"] for line in lines)
    assert row.value == max(line["dev"]["auc"] for line in lines)
    add_round(tmp_path / "run", 41, 0.9)
    exact.scan()
    assert (exact.row("run").round, exact.row("run").value) == (41, 0.9)


def test_a_comparison_and_its_runs(tmp_path):
    runs = write_comparison(tmp_path / "few", seeds=1)
    rows = [read_run(folder).row(method) for method, own in runs.items() for folder in own]
    write_json(tmp_path / "few" / "comparison.json", ComparisonRows(rows=rows))
    index = RunIndex(tmp_path)
    index.scan()
    assert (index.row("few").kind, index.row("few/one/seed-1").kind) == ("comparison", "run")
    assert len(index.rows) == 7


def test_links_that_lead_out_are_not_followed(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    write_run(outside / "secret")
    root.mkdir()
    (root / "link").symlink_to(outside, target_is_directory=True)
    run = write_run(root / "run")
    (run / "config.toml").unlink()
    (run / "config.toml").symlink_to("/etc/hostname")
    index = RunIndex(root)
    index.scan()
    (row,) = index.rows
    assert (row.id, row.state) == ("run", "unreadable")
    assert "config.toml is a link that leads out of the folder" in row.message


@pytest.mark.parametrize("content", ["", "{", "[]", '{"method": 3}', '{"metrics": null, "rounds": "x"}'])
def test_a_broken_result_is_shown_as_such(tmp_path, content):
    run = write_run(tmp_path / "run")
    (run / "result.json").write_text(content)
    index = RunIndex(tmp_path)
    index.scan()
    assert index.row("run").state == "unreadable"


def test_a_link_to_nothing_does_not_stop_the_list(tmp_path):
    write_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "result.json").symlink_to(tmp_path / "missing")
    index = RunIndex(tmp_path)
    index.scan()
    assert {row.id: row.state for row in index.rows} == {"good": "finished", "bad": "unreadable"}
    assert index.scan() == set()


def test_what_is_gone_leaves_the_list(tmp_path):
    run = write_run(tmp_path / "run")
    index = RunIndex(tmp_path)
    index.scan()
    run.rename(tmp_path / "other")
    assert index.scan() == {"run", "other"}
    assert [row.id for row in index.rows] == ["other"]
    assert index.look_at("run") is None


def test_an_old_run_without_a_state_is_read_from_its_config(tmp_path):
    run = write_unfinished(tmp_path / "run")
    (run / "state.json").unlink()
    (run / "config.toml").write_text('method = "one"\nseed = 4\n\n[training]\nrounds = 20\n')
    index = RunIndex(tmp_path)
    index.scan()
    row = index.row("run")
    assert (row.method, row.seed, row.said) == ("one", 4, "stopped, round 12 of 20")
    assert row.value is not None


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    index = RunIndex(tmp_path / "run")
    index.scan()
    assert [row.id for row in index.rows] == ["."]
    assert index.folder(".") == tmp_path / "run"
    os.utime(tmp_path / "run" / "result.json")
    assert index.look_at(".").state == "finished"
