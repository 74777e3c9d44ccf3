"""Secure sums between real processes over TLS: a site is killed at each step, and no update stands anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")
pytest.importorskip("Crypto", reason="needs the extra `privacy`")

from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.federation_e2e.summing import (
    FOUR,
    STEPS,
    WEST,
    Absent,
    Dropping,
    new_site_runner,
    plain_round,
    same_weights,
    seen,
    simulated,
    single_answers,
    summed,
    weights_of,
)
from tests.federation_e2e.testbed import PATIENCE, Testbed, rounds, wait_for

pytestmark = pytest.mark.slow

HANGING = Path(__file__).parent / "hanging"
QUANTISATION = 2.5e-7
"""The step of fixed point is 7.5e-9 with four sites; float32 rounds weights between 1 and 2 by 1.2e-7."""


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Testbed]:
    config = summed()
    with Testbed(tmp_path / "federation", names=FOUR) as bed:
        bed.make(config, prepare(config))
        yield bed


def test_a_site_killed_at_each_step(
    four: Testbed, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One step a round: the sum is that of the survivors, to the bit as in a simulation.

    In every round it is the plain mean of the survivors' updates within the quantisation. The site has hung in the
    step for which it is killed: it has taken the request, and never answers it.
    """
    reached: list[dict[str, Any]] = []
    four.start([name for name in FOUR if name != "west"])
    for round_, (step, (_, message)) in enumerate(STEPS.items(), start=1):
        hung = tmp_path / f"hung-{step}"
        four.start_site("west", PYTHONPATH=str(HANGING), HANG_AT=step, HUNG=str(hung))
        config = summed(training__rounds=round_, engine__deadline=PATIENCE)
        process = four.submit(config, out, resume=round_ > 1)
        wait_for(hung.exists, f"the site to be asked for {message}")
        four.kill("west")
        four.ends_well(process)
        (refused,) = rounds(out)[-1]["refused"]
        assert (refused["site"], refused["message"]) == (WEST, message)
        reached.append(weights_of(out, config))
    phases = [phase for phase, _ in STEPS.values()]
    ready = prepare(config)
    secure = Dropping(new_site_runner(config, ready, tmp_path / "secure"), list(phases))
    same_weights(reached[-1], simulated(config, ready, secure))

    plain = summed(secure=False, training__rounds=len(phases))
    absent = Absent(new_site_runner(plain, ready, tmp_path / "plain"), [1, 2, 3])  # who signs has answered
    start = Session(plain, ready, absent, None).checkpoint().weights
    for round_, found in enumerate(reached, start=1):
        same_weights(found, plain_round(plain, ready, start, round_, absent), atol=QUANTISATION)
        start = found

    again = Dropping(new_site_runner(config, ready, tmp_path / "again"), list(phases))
    secrets = single_answers(config, ready, again, monkeypatch)
    assert len(secrets) > 2 * 3 * len(phases)
    places = [four.coordinator.path, out, four.log("superlink"), four.log("submit")]
    files = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
    contents = {str(file): file.read_bytes() for file in files}
    assert not seen(contents, secrets)
    known = [tensor.tobytes() for tensor in reached[-1].values() if tensor.size > 100]
    assert seen(contents, known)  # the sum's model is where it should be: the search works
