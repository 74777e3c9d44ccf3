"""Which runs a page of `fedrel reproduce` takes for its own, and what it keeps of them."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pytest

from fedrel.errors import UserError
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import Plan
from fedrel.runs.reproduce import reproduce
from fedrel.runs.reproduction_record import Reproduction
from fedrel.runs.train import Watcher
from tests.runs.conftest import columns, stop_after


def test_the_result_of_an_earlier_end_does_not_count(paper: Path, tmp_path: Path) -> None:
    text = paper.read_text().replace("scale = 100\n", "scale = 100\nfinalists = 1\n", 1)
    paper.write_text(text)
    whole = reproduce(
        f"{paper}/table1", tmp_path / "elsewhere" / "out", tmp_path / "runs", seeds=1, rows=["one"]
    )
    # Four rounds of one are two for each rate, then two more for the better one: stopped before these are tested.
    with pytest.raises(KeyboardInterrupt):
        reproduce(
            f"{paper}/table1", tmp_path / "o", tmp_path / "r", seeds=1, rows=["one"], watch=stop_after(6)
        )
    again = reproduce(f"{paper}/table1", tmp_path / "o", tmp_path / "r", seeds=1, rows=["one"])
    assert [(run.rounds, run.value) for run in again.cells[0].runs] == [
        (run.rounds, run.value) for run in whole.cells[0].runs
    ]
    assert again.cells[0].runs[0].rounds == 4


def test_a_longer_run_is_not_shown_as_a_shorter_one(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"

    def lengths(seeds: int = 1) -> list[list[int]]:
        found = reproduce(name, out, runs, seeds=seeds, search=False, rows=["one"])
        return [[run.rounds for run in cell.runs] for cell in found.cells if cell.row == "one"]

    name = columns(paper, short='"training.rounds" = 1', long='"training.rounds" = 3')
    assert lengths() == [[1], [3]]
    shutil.rmtree(out)  # the folder of runs has the longer one alone
    assert lengths() == [[1], [3]]
    name = columns(paper, other='"training.rounds" = 2')
    assert lengths(seeds=2) == [[2, 2]]


def test_a_more_patient_run_is_not_shown_as_a_less_patient_one(paper: Path, tmp_path: Path) -> None:
    still = '"training.rounds" = 6, "training.learning_rate" = 1e-9, "evaluation.patience" = '
    name = columns(paper, patient=f"{still}4", hasty=f"{still}2")
    found = reproduce(name, tmp_path / "out", tmp_path / "runs", seeds=1, search=False, rows=["one"])
    patient, hasty = (run for cell in found.cells for run in cell.runs)
    assert patient.rounds == hasty.rounds + 2 == hasty.best_round + 4


def test_what_a_page_knows_outlives_other_commands(paper: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    name = columns(paper, few='"training.fraction" = 0.5')
    first = reproduce(name, out, runs, seeds=1, rows=["one"])
    shutil.rmtree(runs)  # as in another clone
    with pytest.raises(UserError, match="the page is of another experiment"):
        reproduce(name, out, runs, seeds=1, rows=["one"], search=False)
    assert reproduce(name, out, runs, seeds=1, budget=0) == first
    config, away = paper.parent / "config.toml", paper.parent / "away.toml"
    config.rename(away)
    config.write_text((paper.parent / "lost.toml").read_text())
    page = (out / "reproduction.json").read_bytes()
    with pytest.raises(UserError, match="are not at hand"):
        reproduce(name, out, runs, seeds=1)
    assert (out / "reproduction.json").read_bytes() == page
    # Another experiment is another search, though its grid is the same.
    config.write_text(away.read_text().replace("noise = 0.4", "noise = 0.1"))
    beside = reproduce(name, tmp_path / "beside", runs, seeds=1, budget=0)
    assert not any(cell.settings for cell in beside.cells)


def test_a_page_loses_no_seeds_or_columns(
    paper: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    asked = {"out": out, "runs": tmp_path / "runs", "rows": ["one"], "search": False}
    name = columns(paper, few='"training.fraction" = 0.5', all='"training.fraction" = 1.0')

    def seeds() -> dict[str, list[int]]:
        shown: Reproduction = read_json(Reproduction, out / "reproduction.json")
        return {cell.column: [run.seed for run in cell.runs] for cell in shown.cells if cell.row == "one"}

    reproduce(name, seeds=1, only=["all"], **asked)
    assert seeds() == {"all": [1]}
    reproduce(name, seeds=2, only=["few"], **asked)
    assert seeds() == {"few": [1, 2], "all": [1]}
    reproduce(name, seeds=1, **asked)
    assert seeds() == {"few": [1, 2], "all": [1]}
    before = (out / "reproduction.json").read_bytes()
    config = paper.parent / "config.toml"
    config.write_text(config.read_text().replace("noise = 0.4", "noise = 0.1"))
    found = reproduce(name, seeds=1, budget=0, **asked)
    assert found == Reproduction.model_validate_json(before)  # what the page has
    assert (out / "reproduction.json").read_bytes() == before
    assert "is left as it is: it has one, all, seed 1, one, few, seed 1, one, few, seed 2, not" in caplog.text


def test_a_page_loses_no_column_whose_runs_are_not_found_here(
    paper: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, one_row = tmp_path / "out", {"rows": ["one"], "search": False}
    few = '"training.fraction" = 0.5'
    name = columns(paper, few=few, all='"training.fraction" = 1.0')
    reproduce(name, out, tmp_path / "runs", seeds=1, **one_row)
    before = (out / "reproduction.json").read_bytes()
    columns(paper, few=few, all='"training.fraction" = 1.0, "data.noise" = 0.1')
    found = reproduce(name, out, tmp_path / "runs", seeds=3, only=["few"], **one_row)
    assert found == Reproduction.model_validate_json(before)
    assert (out / "reproduction.json").read_bytes() == before
    assert "is left as it is: it has one, all, seed 1, not found here" in caplog.text


def test_what_another_process_wrote_meanwhile_stays_on_the_page(paper: Path, tmp_path: Path) -> None:
    out, runs, one_row = tmp_path / "out", tmp_path / "runs", {"rows": ["one"], "search": False}
    name = columns(paper, few='"training.fraction" = 0.5', all='"training.fraction" = 1.0')

    def others(_: object) -> None:
        reproduce(name, out, runs, seeds=2, only=["few"], **one_row)

    found = reproduce(
        name, out, runs, seeds=1, only=["all"], watch=lambda _, __: Watcher(finished=others), **one_row
    )
    cells = {cell.column: [run.seed for run in cell.runs] for cell in found.cells if cell.row == "one"}
    assert cells == {"few": [1, 2], "all": [1]}
    assert found == read_json(Reproduction, out / "reproduction.json")


def test_differences_of_the_same_runs_are_those_of_the_page(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runs = tmp_path / "out", tmp_path / "runs"
    name, computed = columns(paper, few='"training.fraction" = 0.5'), []
    difference = Plan.difference
    monkeypatch.setattr(
        Plan, "difference", lambda self, *asked: computed.append(asked) or difference(self, *asked)
    )
    first = reproduce(name, out, runs, seeds=1, search=False)
    assert len(computed) == 1
    assert reproduce(name, out, runs, seeds=1, search=False) == first
    assert len(computed) == 1
    reproduce(name, out, runs, seeds=2, search=False, rows=["one"])
    assert len(computed) == 2  # the other row has no second seed, but the cell has other runs


def test_without_data_nothing_is_written(paper: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the data of .* are not at hand") as raised:
        reproduce(f"{paper}/table1", tmp_path / "out", tmp_path / "runs", only=["lost"])
    assert "set FEDREL_DATA" in (raised.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_runs_of_other_files_with_the_same_names_are_not_mixed(paper: Path, tmp_path: Path) -> None:
    name = columns(paper, few='"training.fraction" = 0.5')
    asked = {"seeds": 1, "search": False}
    reproduce(name, tmp_path / "out", tmp_path / "runs", **asked)
    (kept,) = (tmp_path / "out" / "runs").glob("one-*.json")
    run: KeptRun = read_json(KeptRun, kept)
    elsewhere = run.environment.model_copy(update={"data_fingerprint": "0" * 64})
    write_json(kept, run.model_copy(update={"environment": elsewhere}), seal=True)
    with pytest.raises(UserError, match="were not trained on the same data"):
        reproduce(name, tmp_path / "out", tmp_path / "runs", **asked)


def test_a_run_that_was_evaluated_at_its_end_is_not_lengthened(paper: Path, tmp_path: Path) -> None:
    """Another run would have no dev metric in round 2, and may not have its best round there."""
    three = '"training.fraction" = 0.5, "evaluation.every" = 3, "training.rounds" = '
    asked = {"seeds": 1, "search": False, "rows": ["one"]}
    reproduce(columns(paper, few=f"{three}2"), tmp_path / "short", tmp_path / "runs", **asked)
    found = reproduce(columns(paper, few=f"{three}4"), tmp_path / "out", tmp_path / "runs", **asked)
    assert [number for number, _ in found.cells[0].runs[0].dev] == [3, 4]


def test_a_damaged_file_of_answers_is_not_kept(paper: Path, tmp_path: Path) -> None:
    name, asked = columns(paper, few='"training.fraction" = 0.5'), {"seeds": 1, "search": False}
    reproduce(name, tmp_path / "out", tmp_path / "runs", **asked)
    (answers,) = (tmp_path / "runs").glob("*-one-*/test_units.safetensors")
    shutil.rmtree(tmp_path / "out")
    answers.write_bytes(answers.read_bytes()[:-3] + b"\1\1\1")
    with pytest.raises(UserError, match="another SHA-256"):
        reproduce(name, tmp_path / "out", tmp_path / "runs", **asked)


def test_a_damaged_kept_answer_is_named(paper: Path, tmp_path: Path) -> None:
    name, out = columns(paper, few='"training.rounds" = 1'), tmp_path / "out"
    reproduce(name, out, tmp_path / "runs", seeds=1, search=False)
    kept = next((out / "runs").glob("one-*.units.xz"))
    kept.write_bytes(lzma.compress(b"no tensors"))
    (out / "reproduction.json").unlink()  # which has the difference already
    with pytest.raises(UserError, match="cannot be read") as caught:
        reproduce(name, out, tmp_path / "runs", seeds=1, search=False)
    assert caught.value.file == kept
