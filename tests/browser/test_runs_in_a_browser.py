"""The list and a run's page in a real browser, while the run goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.browser.conftest import Studio, until
from tests.conftest import tiny
from tests.studio.conftest import write_run
from tests.studio.live.conftest import add_round, trained_in, write_state, write_unfinished

pytestmark = pytest.mark.programs

CURVE = '[data-plot="AUC on the development set"]'
POINTS = f"document.querySelector('{CURVE}')?.data?.[0].x.length ?? 0"
HOSTILE = "<script>document.title='taken'"


def test_a_curve_grows_while_the_page_is_open(tmp_path, studio, open_page):
    """From an empty folder to a run that is trained, without a reload by hand; hostile names stay text."""
    root = tmp_path / "runs"
    root.mkdir()
    here: Studio = studio(root)
    page = open_page(here.url)
    page.get_by_role("heading", name="No run here yet").wait_for()
    run = root / HOSTILE
    run.mkdir()
    with trained_in(run):
        write_state(run, "reading", rounds=4, method=HOSTILE)
        page.get_by_role("link", name=HOSTILE).click()
        page.get_by_text("No round is finished yet").wait_for()
        write_state(run, "training", rounds=4, method=HOSTILE)
        for number in (1, 2):
            add_round(run, number, number / 10)
        until(page, f"{POINTS} === 2")
        page.evaluate("window.stays = true")
        add_round(run, 3, 0.3)
        until(page, f"{POINTS} === 3")
        assert page.evaluate("window.stays"), "the plot grew without a reload"
        page.get_by_text("round 3 of 4").wait_for()
    page.get_by_text("stopped, round 3 of 4").wait_for()
    assert page.title() == f"{HOSTILE}, seed 1 · fedrel"
    assert page.locator("svg.main-svg").count() > 3


def test_the_list_is_filtered_sorted_and_noted(tmp_path, studio, open_page):
    write_run(tmp_path / "b", "one", seed=1)
    write_run(tmp_path / "a", "lazy-mil", seed=2)
    write_unfinished(tmp_path / "c", "failed", message="no site answered")
    page = open_page(studio(tmp_path).url)
    names = page.locator("tbody tr:not([hidden]) th a")
    assert names.count() == 3
    page.keyboard.press("/")
    page.keyboard.type("failed")
    assert names.all_text_contents() == ["c"]
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="Best").click()
    assert names.all_text_contents()[0] in ("a", "c")
    page.get_by_role("button", name="Run", exact=True).click()
    assert names.all_text_contents() == ["a", "b", "c"]
    page.get_by_label("Compare a").check()
    assert page.get_by_role("button", name="Compare 1").is_enabled()
    page.get_by_role("link", name="a", exact=True).click()
    page.get_by_label("Tags, separated by commas").fill("for the paper, <b>")
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("status").get_by_text("kept", exact=True).wait_for()
    page.go_back()
    page.locator(".tag", has_text="for the paper").wait_for()
    assert page.locator(".tag", has_text="<b>").count() == 1


def test_a_wrong_token_and_another_host_are_refused(tmp_path, studio, browser):
    here = studio(tmp_path, "--host", "0.0.0.0", "--token", "a-token-that-is-long-enough")
    port = here.url.rsplit(":", 1)[1].split("/")[0]
    with browser.new_context() as context:
        page = context.new_page()
        base = f"http://127.0.0.1:{port}/"
        assert page.goto(base).status == 401
        assert page.goto(f"{base}?token=wrong").status == 401
        assert page.goto(f"{base}?token=a-token-that-is-long-enough").status == 200
        assert page.url == base, "the token is out of the address"
        assert context.request.get(base, headers={"Host": "evil.example"}).status == 421
        assert page.goto(f"{base}run?id=../../etc/passwd").status == 404


@pytest.mark.slow
def test_a_real_run_is_watched_from_its_beginning_to_its_end(tmp_path, studio, open_page):
    root = tmp_path / "runs"
    root.mkdir()
    config = tmp_path / "tiny.toml"
    config.write_text(tiny(method="lazy-mil", training__rounds=40).to_toml())
    page = open_page(studio(root).url)
    command = [sys.executable, "-m", "fedrel", "run", str(config), "--out", str(root / "first"), "-q"]
    with subprocess.Popen(command) as training:
        page.get_by_role("link", name="first").click()
        until(page, f"{POINTS} > 0")
        before = page.evaluate(POINTS)
        until(page, f"{POINTS} > {before}")
        assert training.wait(120) == 0
    page.get_by_text("On the test set lazy-mil reaches").wait_for(timeout=60_000)
    assert page.locator(".state.finished").count() == 1
    assert page.evaluate(POINTS) == 40
