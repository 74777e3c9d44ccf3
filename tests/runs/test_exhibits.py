"""The list of tables: what is done and how long the rest takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrel.config.papers import papers
from fedrel.runs.exhibits import _Begun, listed_exhibits
from fedrel.runs.plan import Job
from fedrel.runs.reproduce import reproduce
from tests.conftest import tiny
from tests.runs.conftest import stop_after


def test_the_list_estimates_what_is_left_from_trained_rounds(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrel.config.papers.papers_folder", lambda: paper.parent / "papers")
    (paper.parent / "papers").mkdir()
    paper.rename(paper.parent / "papers" / "made_up.toml")
    monkeypatch.setattr("fedrel.config.papers.papers", papers.__wrapped__)
    monkeypatch.setattr("fedrel.runs.exhibits.papers", papers.__wrapped__)
    pages, runs = tmp_path / "pages", tmp_path / "runs"
    before = {one.name: one for one in listed_exhibits(pages, runs, 2)}
    assert [(one.data, one.done, one.runs) for one in before.values()] == [("some", 0, 6), ("in part", 0, 4)]
    assert [(one.seconds_left, one.unknown) for one in before.values()] == [(None, 8), (None, 4)]
    assert before["made_up/table1"].missing == [f"no such file: {tmp_path.name}/no.jsonl"]  # none published

    with pytest.raises(KeyboardInterrupt):
        reproduce("made_up/table2", pages / "made_up-table2", runs, seeds=2, watch=stop_after(1))
    (folder,) = runs.iterdir()
    (line,) = (folder / "metrics.jsonl").open()
    seconds = json.loads(line)["seconds"]
    after = {one.name: one.seconds_left for one in listed_exhibits(pages, runs, 2)}
    assert after["made_up/table2"] == pytest.approx(
        seconds * (3 + 3 * 4)
    )  # of four rounds each, one is trained
    # The same preset in another table: six runs, and a search of two rows, whose better point is a run.
    assert after["made_up/table1"] == pytest.approx(seconds * (6 * 4 + 2 * 4))
    reproduce("made_up/table2", pages / "made_up-table2", runs, seeds=2)
    assert listed_exhibits(pages, runs, 2)[1].seconds_left == 0


def test_the_rounds_of_a_search_count_with_the_sites_that_it_had(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        paper.read_text()
        .partition("[exhibits.table2]")[0]
        .partition('[[exhibits.table1.columns]]\nname = "lost"')[0]
    )
    more = text[text.index("[[exhibits") :].replace('"few"', '"all"').replace("= 0.5 }", "= 1.0 }")
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "made_up.toml").write_text(text + more)
    monkeypatch.setattr("fedrel.config.papers.papers_folder", lambda: folder)
    monkeypatch.setattr("fedrel.config.papers.papers", papers.__wrapped__)
    monkeypatch.setattr("fedrel.runs.exhibits.papers", papers.__wrapped__)
    pages, runs = tmp_path / "pages", tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce("made_up/table1", pages / "made_up-table1", runs, seeds=1, watch=stop_after(1))
    (line,) = next(runs.rglob("metrics.jsonl")).open()
    seconds = json.loads(line)["seconds"]  # of a round with half of the sites
    (listed,) = listed_exhibits(pages, runs, 1)
    searched = 2 * 4 - 1  # rounds of points that will not be runs of the table
    assert listed.seconds_left == pytest.approx((searched + 3 * 4) * seconds + 3 * 4 * 2 * seconds)


def test_an_estimate_follows_method_epochs_active_sites_and_patience() -> None:
    def begun(
        rounds: int, seconds: float, preset: str = "p", finished: bool = False, **settings: object
    ) -> _Begun:
        config = tiny(**{"training__rounds": 10, **settings})
        job = Job("row", "column", 1, preset, config, Path("none"), settled=True)
        return _Begun(job, rounds, seconds, finished)

    known = [begun(10, 20.0, method="one", finished=True), begun(5, 5.0, method="fedavg")]
    epochs, fraction = tiny().training.epochs, tiny().training.fraction

    def left(rounds: int = 0, preset: str = "p", **settings: object) -> float | None:
        return begun(rounds, 0.0, preset, **settings).seconds_left(known)

    assert left(method="one") == pytest.approx(20)
    assert left(method="fedavg") == pytest.approx(10)
    assert left(4, method="fedavg") == pytest.approx(6)  # four of ten rounds are trained
    assert left(method="ave") == pytest.approx(10 * 25 / 15)  # as all others on average
    assert left(method="one", training__epochs=2 * epochs) == pytest.approx(40)
    assert left(method="one", training__fraction=fraction / 2) == pytest.approx(10)
    assert left(method="one", training__rounds=100) == pytest.approx(200)
    assert left(method="one", training__rounds=100, evaluation__patience=5) == pytest.approx(20)
    assert left(method="one", preset="another") is None
