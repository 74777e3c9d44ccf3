"""Flower's simulation: virtual nodes served by Ray, and the same weights and bytes as in one process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fedrel.config.schema import Config
from fedrel.runs.train import run
from tests.federation.test_engines import same
from tests.federation_e2e.conftest import Local, experiment

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `flower-simulation`"),
]


def simulated(config: Config) -> Config:
    return config.with_settings(['engine.kind="flower-simulation"', "engine.workers=2"])


def test_lazy_mil_in_flowers_simulation(local: Local, out: Path):
    config = experiment(case_study=2)
    run(simulated(config), out)
    same(local(config), out)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["feded", "fedcmc", "scaffold"])
def test_other_methods_in_flowers_simulation(method: str, local: Local, out: Path):
    config = experiment(method)
    run(simulated(config), out)
    same(local(config), out)


@pytest.mark.slow
def test_a_simulation_goes_on_with_another_engines_run(local: Local, out: Path):
    longer = experiment("scaffold", training__rounds=4)
    run(experiment("scaffold", training__rounds=2), out)
    run(simulated(longer), out, resume=True)
    same(local(longer), out)
