"""Every method comes to its recorded weights and metrics, and by every engine to the same ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.cases import CASES, FLOWER
from tests.golden.records import Golden, carry_out, differences, hashes, numbers, read_golden, signature
from tests.golden.runs import known_methods

Run = Callable[[str, str], Path]

RENEW = "`python -m tests.golden` adds this machine; `--changed` is for results that changed on purpose"


@pytest.fixture(scope="session")
def golden() -> Golden:
    return read_golden()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The folder of a case's run by an engine; each is run once."""
    inputs = tmp_path_factory.mktemp("inputs")
    done: dict[tuple[str, str], Path] = {}

    def folder(name: str, engine: str) -> Path:
        if (name, engine) not in done:
            for module in (*CASES[name].needs, *(("ray",) if engine == FLOWER else ())):
                pytest.importorskip(module)
            out = tmp_path_factory.mktemp("golden") / "run"
            done[name, engine] = carry_out(name, engine, inputs, out)
        return done[name, engine]

    return folder


def _engines() -> list[object]:
    """Every case with every engine but `local`."""
    made: list[object] = []
    for name, case in CASES.items():
        for engine in (*case.fast, *case.slow):
            made.append(pytest.param(name, engine, marks=[pytest.mark.slow] * (engine in case.slow)))
    return made


@pytest.mark.parametrize("name", CASES)
def test_losses_and_dev_metrics_are_the_recorded_ones(name: str, run: Run, golden: Golden) -> None:
    assert not differences(numbers(run(name, "local")), golden["expected"][name])


@pytest.mark.parametrize("name", CASES)
def test_weights_and_metrics_have_the_recorded_hashes(name: str, run: Run, golden: Golden) -> None:
    recorded = golden["hashes"].get(signature(), {}).get(name)
    if recorded is None:
        pytest.skip(f"no hashes are recorded for this machine ({signature()}): {RENEW}")
    folder = run(name, "local")
    assert hashes(folder) == recorded, f"{folder} is not as recorded: {RENEW}"


@pytest.mark.parametrize(("name", "engine"), _engines())
def test_engines_give_the_same_weights_and_metrics(name: str, engine: str, run: Run) -> None:
    assert hashes(run(name, engine)) == hashes(run(name, "local"))


def test_every_method_has_a_case_and_every_case_a_record(golden: Golden) -> None:
    assert known_methods() <= {part for case in CASES.values() for part in case.tree["method"].split("+")}
    assert set(golden["expected"]) == set(CASES)
    recorded = [set(cases) for cases in golden["hashes"].values()]
    assert set(CASES) in recorded  # a machine that has not recorded what changed since has fewer
    assert all(cases <= set(CASES) for cases in recorded)
