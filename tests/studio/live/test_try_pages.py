"""Text is read by a model of the folder, in a process of its own; limits, links, and hostile text."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from fedrel.errors import UserError
from fedrel.runs.train import run
from fedrel.studio.live.predictor import Predictor
from tests.conftest import tiny
from tests.studio.html_page import Page

pytest.importorskip("starlette", reason="needs pip install 'fedrel[studio]'")

from starlette.testclient import TestClient

from fedrel.studio.live.access import address
from fedrel.studio.live.studio_app import studio_app

HERE = "http://127.0.0.1:8420"
SCRIPT = "<script>alert(1)</script>"
TEXT = f"Ada Quill was born in Troutmere. Nobody met {SCRIPT} there. Ada Quill left."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run(tiny(method="one", training__rounds=1), root / "first")
    (root / "names.tsv").write_text("Ada Quill\nTroutmere\n")
    return root


def client(root: Path) -> TestClient:
    return TestClient(studio_app(root, address("127.0.0.1", 8420)), base_url=HERE)


def marks(text: str, *names: str) -> list[list[object]]:
    return [[text.index(name), text.index(name) + len(name), ""] for name in names]


def ask(browser: TestClient, **changes: object) -> dict:
    sent = {"model": "first", "text": TEXT, "marks": marks(TEXT, "Ada Quill", "Troutmere"), "threshold": 0.0}
    return browser.post("/try", json=sent | changes, headers={"Origin": HERE}).json()


def test_the_form_offers_what_is_in_the_folder(trained):
    shown = Page(client(trained).get("/try").text)
    assert [one["value"] for one in shown.all("option")] == ["first", "", "names.tsv"]


def test_an_empty_folder_says_what_to_do(tmp_path):
    assert "No trained model here yet" in client(tmp_path).get("/try").text


def test_relations_of_marked_entities_named_ones_and_those_of_a_kb(trained):
    with client(trained) as browser:  # one event loop, one process
        by_marks = ask(browser)
        by_names = ask(browser, marks=[], names="Ada Quill\nTroutmere")
        by_kb = ask(browser, marks=[], kb="names.tsv")
        hostile = ask(browser, marks=marks(TEXT, SCRIPT, "Nobody"))
        none = ask(browser, threshold=1.0)
        unknown = ask(browser, marks=[])
    facts = [
        {(one["h"]["name"], one["relation"], one["t"]["name"]) for one in found["lines"]}
        for found in (by_marks, by_names, by_kb)
    ]
    assert len(facts[0]) == 2 * 4  # both directions, each relation but NA
    assert facts[1] == facts[2] == facts[0]
    shown = Page(by_marks["html"])
    assert "8 relations in 2 sentences with a pair of entities" in " ".join(shown.words.split())
    assert len([one for one in shown.all("g") if one.get("class") == "arc"]) == 8
    assert shown.words.count("evidence: “Ada Quill was born in Troutmere.”") == 8  # on hovering
    assert Page(hostile["html"]).all("script") == [] and SCRIPT in Page(hostile["html"]).words
    assert "No relation is as probable as the threshold, 1." in none["html"]
    assert unknown["problem"] == "it is not known which entities to look for"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": ""}, "no text"),
        ({"text": "x" * 50_001}, "50,000"),
        ({"text": ["x"]}, "no text"),
        ({"model": "../first"}, "no such model"),
        ({"model": "/etc"}, "no such model"),
        ({"kb": "../names.tsv"}, "no such model or knowledge base"),
        ({"marks": [[0, 5]]}, "marks"),
        ({"marks": [["0", 5, ""]]}, "marks"),
        ({"marks": [[0, 1, ""]] * 501}, "marks"),
        ({"threshold": 2}, "between 0 and 1"),
        ({"threshold": "0.5"}, "between 0 and 1"),
        ({"names": "x" * 20_001}, "names"),
    ],
)
def test_what_cannot_be_asked(trained, changes, said):
    assert said in ask(client(trained), **changes)["problem"]


def test_a_model_with_a_link_that_leads_out_is_not_offered(trained, tmp_path):
    import shutil

    root = tmp_path / "runs"
    shutil.copytree(trained, root)
    (root / "first" / "model" / "extra").symlink_to("/etc")
    (root / "names.tsv").unlink()
    (root / "names.tsv").symlink_to("/etc/passwd")
    assert "No trained model here yet" in client(root).get("/try").text
    assert "no such model" in ask(client(root))["problem"]


def process(monkeypatch, tmp_path, code):
    """A process in the place of the one that reads text."""
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_process_that_takes_too_long_is_ended(real_python, monkeypatch, tmp_path):
    process(monkeypatch, tmp_path, "import time; time.sleep(60)")

    async def ask_twice():
        predictor = Predictor(seconds=0.3)
        for _ in range(2):
            with pytest.raises(UserError, match=r"not read within 0\.3 seconds"):
                await predictor.ask({})
        return predictor._process

    assert asyncio.run(ask_twice()) is None


def test_a_process_that_dies_is_an_error_and_is_started_again(real_python, monkeypatch, tmp_path):
    process(monkeypatch, tmp_path, "input(); raise SystemExit(1)")

    async def ask_twice():
        predictor = Predictor()
        for _ in range(2):
            with pytest.raises(UserError, match="has ended"):
                await predictor.ask({})

    asyncio.run(ask_twice())


def test_only_a_few_may_wait(real_python, monkeypatch, tmp_path):
    process(monkeypatch, tmp_path, "import time; time.sleep(60)")

    async def ask_often():
        predictor = Predictor(seconds=0.5)
        found = await asyncio.gather(*(predictor.ask({}) for _ in range(6)), return_exceptions=True)
        return [one.problem for one in found]

    problems = asyncio.run(ask_often())
    assert sum("others are waiting" in one for one in problems) == 2
