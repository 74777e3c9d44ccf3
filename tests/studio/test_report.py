from __future__ import annotations

import base64
import hashlib
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from fedrel.runs.folder import read_run
from fedrel.studio.formatting import share, size
from fedrel.studio.report import write_comparison_report, write_run_report
from fedrel.studio.site_views import vector_view
from tests.studio.conftest import RELATIONS, SENTENCES, SITES, case, write_classification, write_json
from tests.studio.html_page import Page

Make = Callable[..., Path]
OPTIONAL = ["config.toml", "environment.json", "metrics.jsonl", "pr_curve.json", "case_study.json"]
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>&amp;",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eright to left\u202c שלום",
    "x" * 3000,
    "<!--",
]


def read(page: Path) -> Page:
    return Page(page.read_text(encoding="utf-8"))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    write_json(path, change(json.loads(path.read_text(encoding="utf-8"))))


def assert_loads_nothing(page: Page) -> None:
    assert not page.all("link")
    assert not page.all("img")
    shared = [one["src"] for one in page.all("script") if "src" in one]
    for tag, every in page.elements:
        attributes = {name: value for name, value in every.items() if value not in shared}
        assert not {"src", "srcset", "action", "poster", "background"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes), tag
        assert not re.match(r"[a-z]*:|//", attributes.get("href", ""))
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    own = [script for script in page.scripts if script]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in own]
    allowed = [f"'sha256-{digest}'" for digest in digests] + (["'self'", "file:"] if shared else [])
    assert policy.split("script-src ")[1].split() == allowed
    assert (shared, len(digests)) in [(["plotly.min.js"], 1), ([], 2)]  # plotly and our own


def assert_accessible(page: Page) -> None:
    assert page.all("html") == [{"lang": "en-GB"}]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert not link["href"].startswith("#") or link["href"][1:] in ids
    plots = [a for a in page.all("div") if "plot" in a.get("class", "").split()]
    assert len(plots) == len(page.figures) == len(page.all("figcaption"))
    assert all(plot["role"] == "group" and plot["aria-label"] for plot in plots)
    assert all("scope" in header for header in page.all("th"))


def test_run_page(make_run: Make) -> None:
    folder = make_run()
    path = write_run_report(folder)
    page = read(path)
    assert path == folder / "report.html"
    assert_loads_nothing(page)
    assert_accessible(page)
    for figure in page.figures:
        go.Figure(figure)
    assert len(page.figures) == 7  # curve, map of sites, two of convergence, two of traffic, selection


def test_a_standalone_page_needs_no_other_file(make_run: Make) -> None:
    folder = make_run()
    page = read(write_run_report(folder, standalone=True))
    assert_loads_nothing(page)
    assert not (folder / "plotly.min.js").exists()
    assert len(page.scripts[0]) > 1_000_000 and not any("src" in one for one in page.all("script"))


def test_the_runs_of_a_comparison_share_one_script(make_run: Make) -> None:
    folder = make_run()
    page = read(write_run_report(folder, shared=folder.parent))
    assert {"src": "../plotly.min.js"} in page.all("script")
    assert (folder.parent / "plotly.min.js").stat().st_size > 1_000_000
    assert not (folder / "plotly.min.js").exists()
    assert (folder / "report.html").stat().st_size < 1_000_000
    before = (folder / "report.html").read_bytes()
    assert write_run_report(folder).read_bytes() == before  # written anew, it finds the script again


def test_the_header_names_corpus_sites_and_the_share_of_active_ones(make_run: Make) -> None:
    folder = make_run()
    lines = ['[data]\ncorpus = "files"\nformat = "ppi"\nroot = "/data/ppi"', '[partition]\nkind = "source"']
    (folder / "config.toml").write_text("\n".join([*lines, "[training]\nfraction = 0.5"]))
    assert "ppi · natural sites · C = 0.5" in read(write_run_report(folder)).words


def test_run_page_shows_the_numbers_of_the_run(make_run: Make) -> None:
    run = read_run(make_run())
    page = read(write_run_report(run.folder))
    first = len(run.result.metrics)
    assert page.values[:first] == list(run.result.metrics.values())
    each = [
        value
        for one in run.rounds
        for value in (
            one.loss,
            one.dev and one.dev["auc"],
            one.selection_precision,
            one.bytes.up,
            one.bytes.down,
        )
    ]
    assert page.values[first : first + len(each)] == each
    for kind in ("Weights", "Update", "Claims", "Winners"):
        up = sum(one.bytes.by_kind[kind].up for one in run.rounds)
        at = page.cells.index(kind)
        assert page.cells[at + 1] == size(up)
    assert "Update: embedding.weight is not finite" in page.cells
    assert share(run.result.metrics["auc"]) in page.words
    assert run.config in page.words
    assert "2.13.0" in page.cells


def test_comparison_page(comparison: dict[str, list[Path]], tmp_path: Path) -> None:
    path = write_comparison_report(tmp_path, comparison)
    page = read(path)
    assert path == tmp_path / "report.html"
    assert_loads_nothing(page)
    assert_accessible(page)
    for figure in page.figures:
        go.Figure(figure)
    assert len(page.figures) == 6  # curves, convergence over rounds, bytes and time, selection, traffic
    names = [trace["name"] for trace in page.figures[0]["data"]]
    assert names == list(comparison)
    assert "lazy-mil has the highest AUC" in page.words
    assert "It also trained on the cleanest sentences: 86%" in page.words
    assert "--methods none,one,ave,att,att-ra,lazy-mil --seeds 2" in page.words


def test_comparison_page_shows_means_and_spreads(comparison: dict[str, list[Path]], tmp_path: Path) -> None:
    page = read(write_comparison_report(tmp_path, comparison))
    for method, folders in comparison.items():
        results = [read_run(folder).result for folder in folders]
        row = page.cells[page.cells.index(method) :]
        for cell, metric in zip(row[1:8], results[0].metrics, strict=True):
            values = [result.metrics[metric] for result in results]
            assert cell == f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"
        assert row[8] == f"{results[0].selection_precision:.3f} ± 0.000"
        assert row[9:13] == ["12", size(results[0].bytes.up), size(results[0].bytes.down), "33 s"]


def test_comparison_page_lists_every_run_exactly(comparison: dict[str, list[Path]], tmp_path: Path) -> None:
    write_run_report(comparison["att"][1])
    page = read(write_comparison_report(tmp_path, comparison))
    for folders in comparison.values():
        for folder in folders:
            result = read_run(folder).result
            assert set(result.metrics.values()) <= set(page.values)
            assert result.bytes.up in page.values
    links = [a["href"] for a in page.all("a") if not a["href"].startswith("#")]
    assert links == ["att/seed-2/report.html"]


def test_case_study_says_who_trained_on_what(comparison: dict[str, list[Path]], tmp_path: Path) -> None:
    page = read(write_comparison_report(tmp_path, comparison))
    assert page.captions[0] == "Tessa Quill chief_executive_of Orvane"
    at = page.cells.index(SENTENCES[0][1])
    site, text, truth, *uses = page.cells[at - 1 : at + 8]
    assert (site, text, truth) == ("3", SENTENCES[0][1], "expresses")
    seen = dict(zip(comparison, (" ".join(use.split()) for use in uses), strict=True))
    assert seen["none"] == "✓trained on 1.00"
    assert seen["att"] == "✓trained on 0.61"
    assert seen["lazy-mil"] == "◐partly trained on 0.12"
    at = page.cells.index(SENTENCES[1][1])
    assert page.cells[at + 1] == "only mentions"
    assert page.cells[at + 7] == "✗left out 0.00"
    at = page.cells.index(SENTENCES[2][1])
    assert page.cells[at + 2].endswith("its site was never active")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_strings_from_data_stay_text(hostile: str, make_run: Make, tmp_path: Path) -> None:
    folder = make_run(rounds=2, method="one", **{"metrics": {hostile: 0.5, "auc": 0.4}})
    edit(folder / "result.json", lambda result: result | {"method": hostile})
    edit(folder / "environment.json", lambda environment: environment | {hostile: {"a": [hostile, 1]}})
    line = {
        "round": 1,
        "dev": {hostile: 0.3},
        "bytes": {"up": 3, "down": 4, "by_kind": {hostile: {"up": 3, "down": 4}}},
        "refused": [{"site": 1, "reason": hostile}],
    }
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (folder / "config.toml").write_text(f"# {hostile}\n", encoding="utf-8")
    study = case("one", head=f"H{hostile}", tail=f"T{hostile}") | {"relation": hostile}
    write_json(folder / "case_study.json", [study])
    for page in (
        read(write_run_report(folder)),
        read(write_comparison_report(tmp_path, {hostile: [folder], "b": [folder]})),
    ):
        assert_loads_nothing(page)
        assert not {"img", "svg"} & {tag for tag, _ in page.elements}
        assert study["sentences"][0]["text"] in page.cells
        assert page.captions[0 if "compared" in page.words else -1].endswith(f"{hostile} T{hostile}")
        assert hostile in page.cells
        assert f"# {hostile}" in page.words
        for figure in page.figures:
            go.Figure(figure)


@pytest.mark.parametrize("missing", [[name] for name in OPTIONAL] + [OPTIONAL])
def test_missing_files_leave_their_part_out(missing: list[str], make_run: Make, tmp_path: Path) -> None:
    folder = make_run()
    for name in missing:
        (folder / name).unlink()
    for page in (
        read(write_run_report(folder)),
        read(
            write_comparison_report(
                tmp_path, {"lazy-mil": [folder], "one": [make_run("other", method="one")]}
            )
        ),
    ):
        assert_loads_nothing(page)
        assert_accessible(page)


def test_bare_result_makes_a_page(make_run: Make) -> None:
    folder = make_run()
    for name in OPTIONAL:
        (folder / name).unlink()
    edit(
        folder / "result.json",
        lambda result: result | {"metrics": {}, "best_round": None, "selection_precision": None},
    )
    page = read(write_run_report(folder))
    assert page.figures == []
    assert "lazy-mil, seed 1" in page.words


def test_rounds_without_a_value_leave_gaps(make_run: Make) -> None:
    folder = make_run(rounds=4, best_round=None)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line |= {"dev": None, "selection_precision": None, "refused": []}
    lines[2] |= {"dev": {"auc": 0.25}, "loss": float("nan")}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    page = read(write_run_report(folder))
    _, _, development, loss, *_ = page.figures
    assert (development["data"][0]["x"], development["data"][0]["y"]) == ([3], [0.25])
    assert loss["data"][0]["x"] == [1, 2, 4]
    assert "Selection precision" not in [
        trace["name"] for f in page.figures for trace in f["data"] if "name" in trace
    ]
    assert "No message was refused." in page.words


def test_one_seed_does_not_pretend_to_certainty(make_run: Make, tmp_path: Path) -> None:
    runs = {method: [make_run(method, method=method)] for method in ("one", "lazy-mil")}
    page = read(write_comparison_report(tmp_path, runs))
    assert "no telling how much of that is chance" in page.words
    assert "±" not in page.words


def test_methods_that_draw_share_the_headline(make_run: Make, tmp_path: Path) -> None:
    runs = {name: [make_run(name, method=name, metrics={"auc": 0.4})] for name in ("b", "a")}
    assert "a and b share the highest AUC, 0.400." in read(write_comparison_report(tmp_path, runs)).words


def test_nothing_to_compare_is_still_a_page(tmp_path: Path) -> None:
    page = read(write_comparison_report(tmp_path, {"one": []}))
    assert "0 methods compared" in page.words


def test_page_of_a_classification(classification: Path) -> None:
    page = read(write_run_report(classification))
    assert_loads_nothing(page)
    assert_accessible(page)
    for figure in page.figures:
        go.Figure(figure)
    # confusion, two of sites, two of convergence, two of traffic, four of class vectors, selection
    assert len(page.figures) == 12
    assert "reaches F1 0.610" in page.words
    assert "F1 0.3 on the development set, the target, was reached in round 3, after 3.0 kB" in page.words
    assert "The worst is south, 0.250" in page.words
    assert "encoding adds 200 B to what it sends" in page.words
    at = page.cells.index("treats")
    assert page.cells[at : at + 5] == ["treats", "0.629", "0.571", "0.700", "40"]
    assert [cell for cell in page.cells if cell in RELATIONS] == RELATIONS  # the most frequent first
    view = vector_view(read_run(classification))
    assert view is not None
    verdicts = {check.verdict for check in view.checks}
    assert [cell for cell in page.cells if cell in verdicts] == [check.verdict for check in view.checks]


def test_a_target_out_of_reach_is_said_so(classification: Path) -> None:
    edit(classification / "result.json", lambda result: result | {"to_target": None})
    page = read(write_run_report(classification))
    assert "the target, was not reached in 4 rounds." in page.words


@pytest.mark.parametrize("missing", ["classes.json", "label_counts.json", "config.toml", "metrics.jsonl"])
def test_a_classification_without_a_file_leaves_its_part_out(missing: str, classification: Path) -> None:
    (classification / missing).unlink()
    page = read(write_run_report(classification))
    assert_loads_nothing(page)
    assert_accessible(page)


@pytest.mark.parametrize("hostile", HOSTILE[:3])
def test_relations_and_sites_stay_text(hostile: str, classification: Path, tmp_path: Path) -> None:
    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {renamed(key): renamed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [renamed(inner) for inner in value]
        return hostile if value in ("treats", "south") else value

    for name in ("classes.json", "label_counts.json", "result.json"):
        edit(classification / name, renamed)
    for page in (
        read(write_run_report(classification)),
        read(write_comparison_report(tmp_path, {"a": [classification], "b": [classification]})),
    ):
        assert_loads_nothing(page)
        assert not {"img", "svg"} & {tag for tag, _ in page.elements}
        for figure in page.figures:
            go.Figure(figure)
    assert hostile in read(classification / "report.html").cells


def test_comparison_of_classifications(tmp_path: Path) -> None:
    runs = {
        method: [
            write_classification(tmp_path / method / f"seed-{seed}", method, seed, **about) for seed in (1, 2)
        ]
        for method, about in {"fedavg": {}, "fedcmc": {"to_target": None}}.items()
    }
    page = read(write_comparison_report(tmp_path, runs))
    assert_loads_nothing(page)
    assert_accessible(page)
    for figure in page.figures:
        go.Figure(figure)
    titles = re.findall(r"F1 by relation|F1 at each site|F1 on the development set", page.words)
    assert titles == ["F1 by relation", "F1 at each site", "F1 on the development set"]
    assert "fedavg and fedcmc share the highest F1, 0.615." in page.words
    dev = page.figures[2]
    assert dev["layout"]["shapes"][0]["y0"] == 0.3  # the target
    row = page.cells[len(page.cells) - 1 - page.cells[::-1].index("fedcmc") :]
    assert row[6:9] == ["—", "—", "—"]
    assert "Worst site" in page.cells
    sites = [trace for trace in page.figures[1]["data"] if trace["mode"] == "markers"]
    assert len(sites[0]["x"]) == 2 * (len(SITES) - 1)


def test_uploads_far_apart_are_drawn_over_bytes(tmp_path: Path) -> None:
    runs = {m: [write_classification(tmp_path / m, m)] for m in ("fedavg", "feded")}
    lines = (runs["feded"][0] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    small = [json.loads(line) for line in lines]
    for line in small:
        line["bytes"] |= {"up": 5000}
    (runs["feded"][0] / "metrics.jsonl").write_text("\n".join(map(json.dumps, small)), encoding="utf-8")
    page = read(write_comparison_report(tmp_path, runs))
    figure = next(one for one in page.figures if one["layout"]["xaxis"].get("type") == "log")
    assert [trace["name"] for trace in figure["data"]] == ["fedavg", "feded"]
    assert figure["data"][1]["x"] == [5000, 10_000, 15_000, 20_000]
    assert figure["data"][1]["y"] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_classification_tells_no_case_that_is_none(classification: Path) -> None:
    """Where all sentences are trained on alike, there is no choice to show."""
    assert "Tessa Quill" in read(write_run_report(classification)).words

    def alike(cases: Any) -> Any:
        for one in cases:
            for sentence in one["sentences"]:
                sentence["weight"] = 1.0 if sentence["seen"] else 0.0
        return cases

    edit(classification / "case_study.json", alike)
    assert "Tessa Quill" not in read(write_run_report(classification)).words


def test_means_end_with_the_shortest_run(make_run: Make, tmp_path: Path) -> None:
    """With patience, seeds stop in different rounds."""

    def dev_at(rounds: int, values: dict[int, float], seed: int) -> Path:
        folder = make_run(f"seed-{seed}", method="fedavg", seed=seed, rounds=rounds)
        path = folder / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            line["dev"] = {"auc": values[line["round"]]} if line["round"] in values else None
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        return folder

    long = dev_at(40, {10: 0.5, 20: 0.6, 30: 0.62, 40: 0.63}, seed=1)
    short = dev_at(20, {10: 0.4, 20: 0.45}, seed=2)
    page = read(write_comparison_report(tmp_path, {"fedavg": [long, short]}))
    drawn = [
        line for one in page.figures for line in one["data"]
        if line.get("mode", "").startswith("lines") and line.get("hoverinfo") != "skip" and len(line["x"]) == 2
    ]  # fmt: skip
    assert [line["y"] for line in drawn] == [pytest.approx([0.45, 0.525])] * 3  # by round, bytes and seconds
    assert drawn[0]["x"] == [10, 20]
    assert "by round; at the end fedavg 0.525." in " ".join(
        one["aria-label"] for one in page.all("div") if "aria-label" in one
    )
    assert page.words.count("A mean ends at the last round of its shortest run") == 4  # of selection, too
    alike = read(write_comparison_report(tmp_path / "alike", {"fedavg": [long]}))
    assert "A mean ends" not in alike.words
