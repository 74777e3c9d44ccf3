"""Any finished runs compared: names, differences, files for other programs, and hostile names in all of them."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from fedrel.files import write_tensors
from fedrel.runs.folder import UNITS, read_run, write_json
from fedrel.runs.records import ComparisonRows
from fedrel.studio.live.compare_pages import differences
from fedrel.studio.tables import comparison_csv, comparison_latex, latex, summarise
from tests.studio.conftest import write_comparison, write_run
from tests.studio.html_page import Page
from tests.studio.live.conftest import write_unfinished

pytest.importorskip("starlette", reason="needs pip install 'fedrel[studio]'")

from starlette.testclient import TestClient

from fedrel.studio.live.access import address
from fedrel.studio.live.compare_pages import method_names
from fedrel.studio.live.run_index import Row
from fedrel.studio.live.studio_app import studio_app

HOSTILE = "=cmd|'/C calc'!A0<script>_&%"


@pytest.fixture
def few(tmp_path):
    """A comparison of six methods with two seeds."""
    runs = write_comparison(tmp_path / "few", seeds=2)
    rows = [read_run(folder).row(method) for method, own in runs.items() for folder in own]
    write_json(tmp_path / "few" / "comparison.json", ComparisonRows(rows=rows))
    return tmp_path


def get(root, path):
    app = studio_app(root, address("127.0.0.1", 8420))
    return TestClient(app, base_url="http://127.0.0.1:8420").get(path)


def test_a_comparison_of_the_folder(few):
    shown = Page(get(few, "/compare?id=few").text)
    assert "6 methods compared" in shown.words
    titles = {one["data-plot"] for one in shown.all("div") if "data-plot" in one}
    assert titles >= {"AUC on the development set", "AUC over bytes", "AUC over time", "Precision and recall"}
    assert all("data-fetch" not in one or "id=few" in one["data-fetch"] for one in shown.all("div"))
    assert "/run?id=few/lazy-mil/seed-2" in [one["href"] for one in shown.all("a")]


def test_runs_of_ones_choice(few):
    ids = ["few/one/seed-1", "few/one/seed-2", "few/lazy-mil/seed-1", "few/lazy-mil/seed-2"]
    query = "&".join(f"id={one}" for one in ids)
    shown = Page(get(few, f"/compare?{query}").text)
    assert (
        "2 methods compared" in shown.words and "Mean ± standard deviation over seeds 1 and 2." in shown.words
    )
    rows = list(csv.reader(io.StringIO(get(few, f"/compare.csv?{query}").text)))
    assert [row[:2] for row in rows[1:]] == [["one", "1"], ["one", "2"], ["lazy-mil", "1"], ["lazy-mil", "2"]]
    auc = read_run(few / "few" / "one" / "seed-1").result.metrics["auc"]
    assert float(rows[1][rows[0].index("auc")]) == auc
    table = get(few, f"/compare.tex?{query}")
    assert "attachment" in table.headers["content-disposition"]
    assert table.text.count(r"\\") == 3 and r"\textbf{" in table.text


def test_nothing_chosen_says_what_to_do(few, tmp_path_factory):
    assert "Mark two or more of the 12 finished runs" in get(few, "/compare").text
    assert "/compare?id=few" in get(few, "/compare").text
    assert "fedrel compare demo" in get(tmp_path_factory.mktemp("none"), "/compare").text


def test_what_is_not_finished_or_not_there_is_said(few):
    write_unfinished(few / "stopped")
    for path, said in (("stopped", "The run stopped is not finished"), ("../x", "no such run")):
        found = get(few, f"/compare?id=few&id={path}")
        assert found.status_code == 404 and said in found.text


def test_the_same_method_with_the_same_seed_is_told_apart_by_its_folder():
    rows = [
        Row("a/seed-1", method="one", seed=1),
        Row("b/seed-1", method="one", seed=1),
        Row("b/seed-2", method="one", seed=2),
        Row("c", method="att", seed=1),
    ]
    assert list(method_names(rows).values()) == ["one (a)", "one (b)", "one (b)", "att"]


def test_differences_against_hand_worked_numbers(tmp_path):
    """Of 4 test sentences, one method gets 3 right with either seed, the other 1."""
    runs = {}
    for method, right in (("one", [1, 0, 0, 0]), ("att", [1, 1, 1, 0])):
        for seed in (1, 2):
            folder = write_run(tmp_path / method / f"seed-{seed}", method, seed)
            metrics = {"f1": sum(right) / 4}
            result = json.loads((folder / "result.json").read_text()) | {"metrics": metrics, "dev_metric": {}}
            (folder / "result.json").write_text(json.dumps(result))
            units = {"correct": np.array(right), "guesses": np.ones(4, int), "facts": np.ones(4, int)}
            write_tensors(folder / UNITS, units, {})
            runs.setdefault(method, []).append(read_run(folder))
    (found,) = differences(runs)
    assert (found.better, found.worse, found.metric, found.seeds) == ("att", "one", "f1", [1, 2])
    assert (found.spread.mean, found.spread.std) == (0.5, 0.0)
    assert found.interval.mean == pytest.approx(0.5)
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)  # 2 of 4 sentences differ
    assert found.verdict == "cannot be told from chance"


def test_a_difference_without_units_says_so(few):
    runs = {name: [read_run(few / "few" / name / "seed-1")] for name in ("one", "none")}
    (found,) = differences(runs)
    assert found.interval is None and found.verdict == "a run has no test_units.safetensors"
    part = get(few, "/compare/differences?id=few").text
    assert part.count("<tr>") == 6 and "<html" not in part


def test_hostile_names_in_files(tmp_path):
    run = read_run(write_run(tmp_path / "run", HOSTILE))
    rows = list(csv.reader(io.StringIO(comparison_csv([run.row()]))))
    assert rows[1][0] == f"'{HOSTILE}"  # text, not a formula
    table = comparison_latex(summarise([run.row()]))
    assert r"<script>\_\&\%" in table
    assert latex("\\input{/etc/passwd}") == r"\textbackslash{}input\{/etc/passwd\}"


def test_two_runs_side_by_side(tmp_path):
    for name, seed, rounds in (("a", 1, 5), ("b", 2, 5)):
        run = write_run(tmp_path / name, seed=seed)
        (run / "config.toml").write_text(f'seed = {seed}\nmethod = "<b>"\n[training]\nrounds = {rounds}\n')
    shown = Page(get(tmp_path, "/difference?id=a&other=b").text)
    assert "The configs differ in one setting." in shown.words
    place = shown.cells.index("seed")
    assert shown.cells[place : place + 3] == ["seed", "1", "2"]
    assert "training.rounds" not in shown.words and "Both were made with the same versions" in shown.words
    assert get(tmp_path, "/difference?id=a&other=../b").status_code == 404
