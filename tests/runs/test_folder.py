from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.errors import UserError
from fedrel.runs.folder import read_run


def test_reads_everything(make_run: Callable[..., Path]) -> None:
    run = read_run(make_run(rounds=3))
    assert [one.round for one in run.rounds] == [1, 2, 3]
    assert run.rounds[2].refused[0].site == 8
    assert run.rounds[0].bytes.by_kind["Claims"].up == 61_000
    assert run.curve is not None
    assert len(run.curve.recall) == 600
    assert run.cases[0].sentences[0].head_span == (26, 37)
    assert run.environment["versions"]["torch"] == "2.13.0"


def test_a_loss_that_is_not_a_number_is_read(make_run: Callable[..., Path]) -> None:
    folder = make_run(rounds=1)
    (folder / "metrics.jsonl").write_text('{"round": 1, "loss": NaN}\n\n', encoding="utf-8")
    assert math.isnan(read_run(folder).rounds[0].loss or 0)


def test_an_unfinished_run_says_what_to_do(make_run: Callable[..., Path]) -> None:
    folder = make_run()
    (folder / "result.json").unlink()
    with pytest.raises(UserError, match=r"result\.json: no such file\nhint: .*--resume"):
        read_run(folder)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.jsonl", '{"round": 1}\n{"round": 2,\n', r"metrics\.jsonl:2: broken JSON"),
        ("metrics.jsonl", '{"round": 1}\n{"round": "x"}\n', r"metrics\.jsonl:2: round: .*integer"),
        ("metrics.jsonl", "[]", r"metrics\.jsonl:1: "),
        ("result.json", '{"method": "one"}', r"result\.json: seed: Field required"),
        ("case_study.json", '[\n{"head": "a"\n', r"case_study\.json:3: broken JSON"),
        (
            "classes.json",
            '{"per_class": [], "confusion": {"relations": []}}',
            r"classes\.json: confusion\.counts",
        ),
        ("label_counts.json", "[", r"label_counts\.json:1: broken JSON"),
        ("config.toml", "seed = \n", r"config\.toml: is not TOML"),
        ("pr_curve.json", '{"precision": [0.5, null], "recall": []}', r"pr_curve\.json: precision\.1"),
    ],
)
def test_broken_files_are_named(make_run: Callable[..., Path], file: str, text: str, message: str) -> None:
    folder = make_run()
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_run(folder)


def test_broken_files_ended_in_a_traceback(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: the file as the library reads it."""
    monkeypatch.setattr(
        "fedrel.runs.folder.read_json",
        lambda kind, path, *given: json.loads(given[0] if given else path.read_text()),
    )
    folder = make_run()
    (folder / "result.json").write_text('{"method": ', encoding="utf-8")
    with pytest.raises(json.JSONDecodeError):
        read_run(folder)


def test_reads_a_classification(classification: Path) -> None:
    run = read_run(classification)
    assert (run.target, run.result.primary, run.curve) == (0.3, "f1", None)
    assert run.result.to_target is not None
    assert (run.result.to_target.round, run.result.to_target.up) == (3, 3000)
    assert run.rounds[0].class_distances is not None
    assert list(run.rounds[0].class_distances) == [0, 1]
    assert run.per_site_and_round is not None
    assert run.per_site_and_round.framing == 200


def test_what_chose_the_round_is_what_the_page_is_about(make_run: Callable[..., Path]) -> None:
    assert read_run(make_run()).result.primary == "auc"  # the first, where nothing is said
    assert read_run(make_run("other", dev_metric={"p_mean": 0.3})).result.primary == "p_mean"
    assert read_run(make_run("bare", metrics={})).result.primary == ""
