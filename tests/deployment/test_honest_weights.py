"""Honest runs are never refused: every site of a simulation judges the weights of every round that it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrel.config.schema import Config
from fedrel.deployment.earned_weights import EarnedWeights, UnearnedError, fingerprint
from fedrel.deployment.policy import Allowed
from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.messages import Arrays, Model, ModelTensors
from fedrel.federation.runner import Runner
from fedrel.federation.site import Site
from fedrel.methods.fedavg import FedAvg
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.conftest import tiny

LIMITS = Allowed().step, Allowed().against
MODEL = "Model.weights/"


class Judged(Engine):
    """Asks the sites in this process; each judges the weights first, as a real site does."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        from fedrel.federation.engines.in_process import LocalEngine

        self.runner, self.folder, self.inner = runner, folder, LocalEngine(runner)
        self.weights: dict[str, Any] = {}
        self.refused: list[str] = []
        self.judged = 0

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        came = {name.removeprefix(MODEL): array for name, array in shared.items() if name.startswith(MODEL)}
        self.weights = came or self.weights
        sites = [site for site in own if site >= 0]
        for site in sites if came else ():
            self.judge(site, round_)
        for site, answer in self.inner.ask(phase, round_, shared, own):
            flat = {name.removeprefix("weights/"): array for name, array in (answer.arrays or {}).items()}
            if site in sites and "examples" in flat:
                tensors = {
                    name: array for name, array in flat.items() if name not in ("examples", "loss", "path")
                }
                update = ModelTensors(rows=True).unpack(tensors, self.runner.shapes)
                self.site(site).trained(round_, self.weights, update)
            yield site, answer

    def judge(self, site: int, round_: int) -> None:
        model, known = self.runner.model, fingerprint(self.weights)

        def trial(start: Any) -> Any:
            return FedAvg().train(Site(model, site, 1, {Model: Model(start)})).weights

        self.judged += 1
        try:
            judge = self.site(site)
            judge.judge(round_, self.weights, known, self.runner.method, model.initial_weights, trial)
        except UnearnedError as error:
            self.refused.append(f"round {round_}, site {site}: {error}")

    def site(self, number: int) -> EarnedWeights:
        return EarnedWeights(self.folder / str(number), *LIMITS)

    def score(self, *given: Any) -> Any:
        return self.inner.score(*given)


def judged(config: Config, folder: Path) -> Judged:
    """A whole run of a config."""
    ready = prepare(config)
    engine = Judged(new_runner(config, ready.site_data, folder / "states"), folder)
    session = Session(config, ready, engine, None)
    while not session.finished():
        session.next_round()
    return engine


SKEWED = {"partition__kind": '"dirichlet"', "partition__alpha": 0.1, "partition__sites": 12}


@pytest.mark.parametrize("name", ["fedavg", "lazy-mil", "fedadam", "fedlc"])
def test_sites_that_differ_much(name: str, tmp_path: Path):
    config = tiny(method=f'"{name}"', training__rounds=4, extractor__bias=False, case_study=0, **SKEWED)
    engine = judged(config, tmp_path)
    assert engine.judged >= 16 and not engine.refused


def test_made_up_weights_among_them_are(tmp_path: Path):
    """The same sites refuse the same run if its coordinator turns a filter to a purpose in round 3."""
    config = tiny(method='"fedavg"', training__rounds=2, training__fraction=1.0, case_study=0)
    engine = judged(config, tmp_path)
    turned = {name: array.copy() for name, array in engine.weights.items()}
    turned["filters"][0] += np.linspace(-3, 3, turned["filters"].shape[1], dtype=np.float32)
    engine.weights = turned
    engine.judge(0, 3)
    assert "filters went" in engine.refused[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lazy-mil", "fedavgm", "feddyn", "scaffold", "fedatt"])
def test_the_demo(name: str, tmp_path: Path):
    """Forty sites of which ten take part in a round: most are asked for the first time in a later one."""
    from fedrel.config.sources import load_config

    config = load_config("demo").with_settings([f"method={name}", "case_study=0"])
    engine = judged(config, tmp_path)
    assert engine.judged >= 240 and not engine.refused
