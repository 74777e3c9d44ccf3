"""A model that a lying site ruins is not saved; a run goes back to its best round, by itself or when told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.runs.engines import SimulatedSites, new_runner
from fedrel.runs.prepare import Preparation
from fedrel.runs.train import run
from tests.conftest import tiny

LIAR = 2
Lie = Callable[[int, dict[str, Any], dict[str, Any]], None]


class LyingEngine(LocalEngine):
    """One site's updates are changed on their way: `lie` gets the round, the update and the global weights."""

    lie: Lie

    def ask(self, phase, round_, shared, own):
        base = {name.removeprefix("Model."): array for name, array in shared.items()}
        for site, answer in super().ask(phase, round_, shared, own):
            if site == LIAR and answer.arrays is not None:
                arrays = {name: np.array(array) for name, array in answer.arrays.items()}
                self.lie(round_, arrays, base)
                answer = Answer(arrays, journal=answer.journal)  # noqa: PLW2901
            yield site, answer


class LyingSites(SimulatedSites):
    def __init__(self, lie: Lie) -> None:
        self._lie = lie

    @contextmanager
    def engine(self, config: Config, ready: Preparation, out: Path, *, fresh: bool) -> Iterator[Engine]:
        engine = LyingEngine(new_runner(config, ready.site_data, out / "sites"))
        engine.lie = self._lie
        yield engine


def scaled(factor: float, *rounds: int) -> Lie:
    """The update's classifier times `factor`, in these rounds; in all if none is named."""

    def lie(round_: int, arrays: dict, base: dict) -> None:
        if not rounds or round_ in rounds:
            name = "weights/classifier.weight"
            arrays[name] = base[name] + np.float32(factor) * (arrays[name] - base[name])

    return lie


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


CONFIG = tiny(method="fedavg", training__fraction=1.0, training__rounds=4)


def test_a_mean_that_diverges_is_not_used_and_the_round_goes_on_without_the_liar(out):
    run(CONFIG, out, sites=LyingSites(scaled(1e5, 2)))
    first, second, *_ = lines(out)
    assert "stood_out" not in first and "began_from" not in first
    assert LIAR not in second["active"] and len(second["active"]) == 5
    (refusal,) = second["refused"]
    assert refusal["site"] == LIAR and refusal["reason"].startswith("stood out, ")
    largest = max(np.abs(t).max() for t in load_file(out / "checkpoint" / "round-00004.safetensors").values())
    assert largest < 100


def test_honest_runs_name_nobody(out):
    run(CONFIG, out)
    assert not any(key in line for line in lines(out) for key in ("stood_out", "began_from"))


def test_a_model_that_was_ruined_unnoticed_is_left_behind(out, monkeypatch):
    """The mean of round 3 is let through; in round 4 honest sites diverge. The liar is named, they are not."""
    monkeypatch.setattr("fedrel.privacy.trust.DIVERGES", 1e30)
    config = CONFIG.with_settings({"training.rounds": 6})
    run(config, out, sites=LyingSites(scaled(1e7, 3)))
    found = lines(out)
    assert [line["round"] for line in found] == [1, 2, 3, 4, 5, 6]
    assert list(found[2]["stood_out"]) == [str(LIAR)]
    assert found[3]["dev"] is None and len(found[3]["refused"]) >= 6
    assert found[4]["began_from"] == 2
    assert "began_from" not in found[5]
    assert found[5]["dev"]["auc"] > found[0]["dev"]["auc"] > 0.05


@pytest.fixture
def one_attempt(monkeypatch):
    """A round with a liar in it cannot be tried again without the liar."""
    monkeypatch.setattr("fedrel.runs.train.ATTEMPTS", 1)


@pytest.mark.usefixtures("one_attempt")
def test_a_run_that_is_ruined_from_the_beginning_stops_and_names_the_liar_alone(out):
    with pytest.raises(UserError) as stopped:
        run(CONFIG, out, sites=LyingSites(scaled(1e5)))
    assert "site-2's update is " in stopped.value.problem
    assert not any(f"site-{site}" in str(stopped.value) for site in range(6) if site != LIAR)


@pytest.mark.usefixtures("one_attempt")
def test_after_two_lost_rounds_a_run_stops_and_honest_sites_go_on(out):
    with pytest.raises(UserError, match=r"round 3: the mean of the updates would ruin the model \(site-2's"):
        run(CONFIG, out, sites=LyingSites(scaled(1e5, 2, 3)))
    assert lines(out)[1]["dev"] is None and list(lines(out)[1]["stood_out"]) == [str(LIAR)]
    assert run(CONFIG, out, resume=True).rounds == 4
    assert lines(out)[2]["began_from"] == 1


def test_a_run_goes_on_from_the_round_that_it_is_told(out):
    run(CONFIG, out)
    kept = {file.name for file in (out / "checkpoint").glob("round-*")}
    assert {"round-00002.safetensors", "round-00003.safetensors", "round-00004.safetensors"} <= kept
    run(CONFIG.with_settings({"training.rounds": 5}), out, resume=True, from_round=2)
    assert lines(out)[4]["began_from"] == 2 and len(lines(out)) == 5


def test_a_round_whose_checkpoint_is_gone_is_refused_with_those_that_are_there(out):
    config = CONFIG.with_settings({"training.rounds": 5, "evaluation.every": 5})
    run(config, out)
    with pytest.raises(UserError, match=r"no checkpoint of round 1\nhint: there are those of round 3, 4, 5"):
        run(config.with_settings({"training.rounds": 6}), out, resume=True, from_round=1)
