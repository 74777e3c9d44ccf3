"""The pages: what they show in each state, and that hostile names stay text."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("starlette", reason="needs pip install 'fedrel[studio]'")

from starlette.testclient import TestClient

from fedrel.studio.live.access import address
from fedrel.studio.live.studio_app import studio_app
from tests.studio.conftest import write_classification, write_run
from tests.studio.html_page import Page
from tests.studio.live.conftest import trained_in, write_state, write_unfinished

HERE = "http://127.0.0.1:8420"
HOSTILE = "<script>alert(1)<\u2044script>"  # a file name cannot hold a slash


def client(root):
    return TestClient(studio_app(root, address("127.0.0.1", 8420)), base_url=HERE)


def page(root, path):
    found = client(root).get(path)
    assert found.status_code == 200, found.text
    return Page(found.text)


def test_an_empty_folder_says_what_to_do(tmp_path):
    shown = page(tmp_path, "/")
    assert "No run here yet" in shown.words and "fedrel run demo" in shown.words


def test_the_list(tmp_path):
    write_run(tmp_path / "done")
    write_unfinished(tmp_path / "broke", "failed", message="no site answered")
    shown = page(tmp_path, "/")
    assert "2 runs: 1 finished and 1 failed." in shown.words
    assert "no site answered" in shown.words
    boxes = [one for one in shown.all("input") if one.get("type") == "checkbox"]
    assert [box["value"] for box in boxes] == ["done"]  # only what is finished can be compared
    assert "/run?id=done" in [one["href"] for one in shown.all("a")]


def test_a_finished_run_has_all_parts_of_its_report(tmp_path):
    write_classification(tmp_path / "run")
    shown = page(tmp_path, "/run?id=run")
    ids = {one.get("id") for one in shown.all("section")}
    assert ids >= {
        "results",
        "relations",
        "sites",
        "convergence",
        "traffic",
        "vectors",
        "reproduce",
        "remarks",
    }
    assert len(shown.figures) >= 8
    assert all("style" not in one for one in shown.all("body"))
    assert "data-stream" not in shown.all("body")[0]


@pytest.mark.parametrize("rounds", [0, 12])
def test_a_run_that_goes_on_is_watched(tmp_path, rounds):
    run = write_unfinished(tmp_path / "run", rounds=max(rounds, 1))
    if not rounds:
        (run / "metrics.jsonl").unlink()
        write_state(run, "reading")
    with trained_in(run):
        shown = page(tmp_path, "/run?id=run")
    assert shown.all("body")[0]["data-stream"] == "/run/events?id=run"
    assert ("No round is finished yet" in shown.words) == (rounds == 0)
    assert ("12 of 50" in shown.words) == (rounds == 12)


def test_no_page_has_an_inline_script_or_another_host(tmp_path):
    write_run(tmp_path / "run")
    for path in ("/", "/run?id=run", "/run?id=none"):
        shown = Page(client(tmp_path).get(path).text)
        assert not any(script.strip() for script in shown.scripts)
        links = [one["href"] for one in shown.all("link")]
        links += [one["src"] for one in shown.all("script") if one.get("type") != "application/json"]
        assert all(link.startswith(("/static/", "data:,")) for link in links)


def test_hostile_names_stay_text(tmp_path):
    run = write_unfinished(
        tmp_path / HOSTILE, "failed", method="<img src=x>", message="</pre><script>x</script>"
    )
    (run / "config.toml").write_text('method = "</pre><script>y</script>"\n')
    for path in ("/", f"/run?id={HOSTILE}"):
        shown = page(tmp_path, path)
        assert HOSTILE in shown.words
        assert all("src" in one or one.get("type") == "application/json" for one in shown.all("script"))
        assert shown.all("img") == []


def test_a_remark_is_kept(tmp_path):
    write_run(tmp_path / "run")
    browser = client(tmp_path)
    browser.get("/")
    sent = {"id": "run", "note": "<b>why</b>", "tags": ["good"]}
    assert browser.post("/remarks", json=sent, headers={"Origin": HERE}).json() == {
        "note": "<b>why</b>",
        "tags": ["good"],
    }
    assert json.loads((tmp_path / "studio.json").read_text()) == {
        "run": {"note": "<b>why</b>", "tags": ["good"]}
    }
    assert "<b>why</b>" in page(tmp_path, "/run?id=run").words
    refused = browser.post("/remarks", json={"id": "../x", "note": "", "tags": []}, headers={"Origin": HERE})
    assert (refused.status_code, "no such run" in refused.json()["problem"]) == (400, True)


def test_nothing_but_the_remarks_changes_on_disk(tmp_path):
    write_run(tmp_path / "done")
    write_unfinished(tmp_path / "stopped")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for path in ("/", "/run?id=done", "/run?id=stopped"):
        page(tmp_path, path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
