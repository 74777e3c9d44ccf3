"""Comparing, trying and the federation's pages in a real browser; and whether everybody can use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrel.runs.folder import read_run, write_json
from fedrel.runs.records import ComparisonRows
from fedrel.runs.train import run
from tests.browser.conftest import until
from tests.conftest import tiny
from tests.studio.conftest import write_classification, write_comparison
from tests.studio.live.conftest import write_unfinished

pytestmark = pytest.mark.programs

TEXT = "Ada Quill was born in <script>Troutmere. Bo Ax met her."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison, a classification, a stopped run and a model."""
    root = tmp_path_factory.mktemp("runs")
    runs = write_comparison(root / "few", seeds=2)
    rows = [read_run(one).row(method) for method, own in runs.items() for one in own]
    write_json(root / "few" / "comparison.json", ComparisonRows(rows=rows))
    write_classification(root / "skewed")
    write_unfinished(root / "stopped")
    run(tiny(method="lazy-mil", training__rounds=1), root / "trained")
    return root


@pytest.mark.slow
def test_runs_are_chosen_compared_and_saved(folder, studio, open_page):
    page = open_page(studio(folder).url, accept_downloads=True)
    for name in ("few/one/seed-1", "few/one/seed-2", "few/lazy-mil/seed-1", "few/lazy-mil/seed-2"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("button", name="Compare 4").click()
    page.get_by_role("heading", name="2 methods compared").wait_for()
    page.get_by_text("lazy-mil minus one").wait_for()
    for title in ("AUC on the development set", "AUC over bytes", "AUC over time"):
        traces = f"document.querySelector('[data-plot=\"{title}\"]').data.length"
        assert page.evaluate(traces) == 4  # a line and a band for each method
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV").click()
    assert saved.value.path().read_text().splitlines()[0].startswith("method,seed,auc")
    with page.expect_download() as saved:
        page.get_by_role("link", name="LaTeX").click()
    assert saved.value.path().read_text().endswith("\\end{tabular}\n")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save AUC over time as SVG").click()
    assert saved.value.path().read_text().startswith("<svg")


@pytest.mark.slow
def test_entities_are_marked_with_the_mouse_and_relations_drawn_as_arcs(folder, studio, open_page):
    page = open_page(f"{studio(folder).url}/try", accept_downloads=True)
    page.get_by_label("Text, of at most").fill(TEXT)
    shown = page.get_by_label("The text with its marks")
    for name in ("Ada Quill", "<script>Troutmere"):
        page.evaluate(
            """([start, end]) => {
              const place = document.getElementById("marked");
              const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
              const range = document.createRange();
              for (let at = 0, node; (node = walker.nextNode()); at += node.length) {
                if (start >= at && start < at + node.length) range.setStart(node, start - at);
                if (end > at && end <= at + node.length) range.setEnd(node, end - at);
              }
              getSelection().removeAllRanges();
              getSelection().addRange(range);
              place.dispatchEvent(new MouseEvent("mouseup", { bubbles: true }));
            }""",
            [TEXT.index(name), TEXT.index(name) + len(name)],
        )
    assert shown.locator("mark").all_text_contents() == ["Ada Quill", "<script>Troutmere"]
    page.get_by_label("Least probability").fill("0")
    page.get_by_role("button", name="Find relations").click()
    page.get_by_role("button", name="Save as JSON").wait_for(timeout=90_000)
    arcs = page.locator("g.arc")
    assert arcs.count() == 8
    said = arcs.first.locator("title").text_content()
    assert "probability 0." in said and "evidence: “Ada Quill was born in <script>Troutmere.”" in said
    assert page.locator("#found mark").all_text_contents() == ["Ada Quill", "<script>Troutmere"]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as JSON").click()
    lines = [json.loads(line) for line in saved.value.path().read_text().splitlines()]
    assert len(lines) == 8 and {line["h"]["name"] for line in lines} == {"Ada Quill", "<script>Troutmere"}
    shown.locator("mark").first.click()
    assert shown.locator("mark").count() == 1
    page.get_by_label("Text, of at most").fill("Something else.")
    assert shown.locator("mark").count() == 0


WIDEST = """Array.from(document.querySelectorAll("body *"))
  .filter((one) => one.getBoundingClientRect().right > 361 && !one.closest(".scroll, .plot, pre"))
  .map((one) => one.outerHTML.slice(0, 120))[0]"""
PAGES = ["/", "/run?id=skewed", "/run?id=stopped", "/compare?id=few", "/compare", "/try"]
PAGES += ["/difference?id=skewed&other=stopped"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(folder, studio, open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    here = studio(folder)
    page = open_page(here.url, color_scheme=scheme, bypass_csp=True)
    serious = []
    for path in PAGES:
        page.goto(here.url + path)
        page.wait_for_timeout(500)
        found = axe.run(page).response["violations"]
        serious += [
            (path, one["id"], one["nodes"][0]["html"][:200])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
    assert serious == []


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(folder, studio, open_page):
    here = studio(folder)
    page = open_page(here.url, viewport={"width": 360, "height": 740})
    wide = {}
    for path in PAGES:
        page.goto(here.url + path)
        until(page, "document.readyState === 'complete'")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide[path] = width, page.evaluate(WIDEST)
    assert wide == {}
