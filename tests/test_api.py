"""The Python API as a user of a script or a notebook meets it."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fedrel
from fedrel.api import Comparison, RunResult, read_result, text_progress, write_report
from fedrel.runs.records import ComparisonRow, Result, Round, RoundTraffic, Traffic
from tests.conftest import tiny


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, list[str]]:
    """Two methods, two seeds each, and what was said meanwhile."""
    said: list[str] = []
    out = tmp_path_factory.mktemp("api") / "compared"
    config = tiny(training__rounds=2)
    return fedrel.compare(config, ["none", "one", "none"], out, seeds=2, progress=said.append), said


@pytest.mark.usefixtures("real_python")
def test_importing_fedrel_imports_nothing_heavy():
    code = (
        "import sys, fedrel; loaded = [m for m in ('torch', 'numpy', 'pydantic', 'rich') if m in sys.modules];"
        "print(loaded, fedrel.__version__, fedrel.UserError.__name__, 'run' in dir(fedrel))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["[]", fedrel.__version__, "UserError", "True"]


def test_all_that_is_promised_is_there():
    promised = {"Config", "Method", "load_config", "run", "compare", "load_model", "UserError", "__version__"}
    assert promised <= set(fedrel.__all__) == set(dir(fedrel))
    for name in fedrel.__all__:
        assert getattr(fedrel, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = fedrel.trian


def test_a_run_from_a_dictionary(tmp_path: Path) -> None:
    tree = tiny(method="one", training__rounds=2).model_dump(mode="json")
    tree["engine"] = {"kind": "workers"}
    said: list[str] = []
    found = fedrel.run(tree, str(tmp_path / "run"), engine="local", report=False, progress=said.append)
    assert isinstance(found, RunResult)
    assert (found.method, found.seed, found.folder) == ("one", 1, tmp_path / "run")
    assert found.metrics["auc"] == found.result.metrics["auc"] > 0
    assert [one.round for one in found.rounds] == [1, 2]
    assert not (tmp_path / "run" / "report.html").exists()
    assert 'kind = "local"' in (tmp_path / "run" / "config.toml").read_text()
    assert said[0] == "one, seed 1: 900 sentences at 6 sites"
    assert said[1].startswith("one, seed 1: round 1 of 2, loss ")
    assert said[-1] == f"one, seed 1: finished after 2 rounds, auc {found.metrics['auc']:.3f}"
    assert read_result(found.folder) == found
    assert fedrel.load_model(found.model).relations[0] == "NA"
    with pytest.raises(fedrel.UserError, match="there is a run in this folder already"):
        fedrel.run(tree, tmp_path / "run", engine="local")
    again = fedrel.run(tree, tmp_path / "run", engine="local", resume=True)
    assert again.result == found.result
    assert (tmp_path / "run" / "report.html").exists()


def test_a_comparison_has_a_row_a_run_and_the_runs(compared: tuple[Comparison, list[str]]) -> None:
    found, said = compared
    assert [(row.method, row.seed) for row in found.rows] == [
        ("none", 1),
        ("none", 2),
        ("one", 1),
        ("one", 2),
    ]
    for name in ("comparison.json", "comparison.md", "report.html", "one/seed-2/report.html"):
        assert (found.folder / name).exists(), name
    assert found.run("one", 2).result.metrics == found.rows[3].metrics
    assert found.run("none").seed == 1
    with pytest.raises(
        fedrel.UserError, match="no run of 'one' with that seed\nhint: there are: none with seed"
    ):
        found.run("one", 7)
    assert sum(line.endswith("at 6 sites") for line in said) == 4


def test_a_report_is_written_anew(compared: tuple[Comparison, list[str]]) -> None:
    found, _ = compared
    for folder in (found.folder, found.folder / "one" / "seed-1"):
        before = (folder / "report.html").read_bytes()
        (folder / "report.html").unlink()
        assert write_report(folder) == folder / "report.html"
        assert (folder / "report.html").read_bytes() == before
    with pytest.raises(fedrel.UserError, match="holds no finished run"):
        write_report(found.folder / "one")


def test_an_unknown_method_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(fedrel.UserError, match="no method is called 'foo'"):
        fedrel.compare(tiny(), ["one", "foo"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tables_for_pandas(compared: tuple[Comparison, list[str]]) -> None:
    pandas = pytest.importorskip("pandas")
    found, _ = compared
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["auc"].tolist() == [row.metrics["auc"] for row in found.rows]
    assert frame.groupby("method")["seed"].count().to_dict() == {"none": 2, "one": 2}
    rounds = found.run("one").to_pandas()
    assert rounds.index.tolist() == [1, 2]
    assert rounds["dev.auc"].tolist() == [one.dev["auc"] for one in found.run("one").rounds if one.dev]
    assert (rounds["up"] > 0).all()


def test_without_pandas_a_table_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        fedrel.UserError, match=r"pandas is not installed.*\nhint: install it: pip install pandas"
    ):
        Comparison(Path(), []).to_pandas()


class Balanced(HTMLParser):
    """Fails where an element is closed that is not open; collects what is to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"div", "strong", "table", "tr", "th", "td", "p", "code"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


HOSTILE = "<script>alert('x')</script>"


def result(method: str) -> Result:
    traffic = Traffic(up=2_000_000, down=10)
    return Result(
        method=method, seed=3, metrics={"auc": 0.5}, best_round=2, rounds=4, bytes=traffic, seconds=75
    )


def read(html: str) -> list[str]:
    page = Balanced()
    page.feed(html)
    assert page.open == []
    return page.text


def test_a_notebook_shows_a_run_and_escapes_names() -> None:
    shown = read(RunResult(Path("runs") / HOSTILE, result(HOSTILE), [])._repr_html_())
    assert shown[0] == f"{HOSTILE}, seed 3"
    assert shown[1:3] == ["AUC", "0.500"]
    assert "2 of 4" in shown and "2.0 MB" in shown
    assert shown[-1] == f"folder: runs/{HOSTILE}"


def test_a_notebook_shows_a_comparison_and_escapes_names() -> None:
    rows = [
        ComparisonRow(
            method=name, seed=1, metrics={"auc": auc}, rounds=2, bytes=Traffic(up=1, down=2), seconds=1.0
        )
        for name, auc in (("one", 0.25), (HOSTILE, 0.5))
    ]
    html = Comparison(Path("here"), rows)._repr_html_()
    shown = read(html)
    assert shown[:2] == ["method", "AUC"]
    assert HOSTILE in shown
    assert "<strong>0.500</strong>" in html and "<strong>0.250</strong>" not in html


def test_lines_of_text_come_at_most_so_often() -> None:
    config, said = tiny(training__rounds=3), []
    for every in (0.0, 3600.0):
        watcher = text_progress(said.append, every=every)("one", config)
        for number in (1, 2, 3):
            watcher.round_done(Round(round=number, loss=0.5, dev={"auc": 0.25}, bytes=RoundTraffic(up=1000)))
        watcher.finished(result("one"))
    assert said == [
        *(f"one: round {number} of 3, loss 0.50 dev 0.250 up 1.0 kB" for number in (1, 2, 3)),
        "one: finished after 4 rounds, auc 0.500",
        "one: round 1 of 3, loss 0.50 dev 0.250 up 1.0 kB",
        "one: finished after 4 rounds, auc 0.500",
    ]
    assert text_progress(None)("one", config).round_done(Round(round=1)) is None
