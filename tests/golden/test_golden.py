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


def _group(name: str) -> pytest.MarkDecorator:
    """What is run in one process: all of a case, so that `local` runs once, and all that import `transformers`."""
    encodes = "encoder" in CASES[name].tree["extractor"]
    return pytest.mark.xdist_group("golden-encoders" if encodes else f"golden-{name}")


def _cases() -> list[object]:
    """Every case."""
    return [pytest.param(name, marks=_group(name)) for name in CASES]


def _engines() -> list[object]:
    """Every case with every engine but `local`; those of Flower one after the other."""
    made: list[object] = []
    for name, case in CASES.items():
        for engine in (*case.fast, *case.slow):
            group = pytest.mark.xdist_group("flower") if engine == FLOWER else _group(name)
            marks = [group, pytest.mark.slow] if engine in case.slow else [group]
            made.append(pytest.param(name, engine, marks=marks))
    return made


@pytest.mark.parametrize("name", _cases())
def test_losses_and_dev_metrics_are_the_recorded_ones(name: str, run: Run, golden: Golden) -> None:
    assert not differences(numbers(run(name, "local")), golden["expected"][name])


@pytest.mark.parametrize("name", _cases())
def test_weights_and_metrics_have_the_recorded_hashes(name: str, run: Run, golden: Golden) -> None:
    recorded = golden["hashes"].get(signature())
    if recorded is None:
        pytest.skip(f"no hashes are recorded for this machine ({signature()}): {RENEW}")
    folder = run(name, "local")
    assert hashes(folder) == recorded[name], f"{folder} is not as recorded: {RENEW}"


@pytest.mark.parametrize(("name", "engine"), _engines())
def test_engines_give_the_same_weights_and_metrics(name: str, engine: str, run: Run) -> None:
    assert hashes(run(name, engine)) == hashes(run(name, "local"))


def test_every_method_has_a_case_and_every_case_a_record(golden: Golden) -> None:
    assert known_methods() <= {part for case in CASES.values() for part in case.tree["method"].split("+")}
    assert set(golden["expected"]) == set(CASES)
    assert all(set(recorded) == set(CASES) for recorded in golden["hashes"].values())
