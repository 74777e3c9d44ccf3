"""Sites and coordinators that die, hang and come back, as real processes: the run goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from tests.federation_e2e.conftest import Local, experiment
from tests.federation_e2e.testbed import PATIENCE, Testbed, rounds, same, wait_for

pytestmark = pytest.mark.slow

WEST = 2  # the number of the site that suffers
WARM, LONG = 2, 500  # rounds: to begin with, and so many that nobody waits for their end
GONE = ("is not connected", "is no longer connected")
MISSED = 30  # seconds without a heartbeat after which Flower may say so, before a slow machine's deadline

Refused = Sequence[dict[str, Any]]


def await_round(out: Path, after: int, what: str, condition: Callable[[Refused], bool]) -> int:
    """Wait for a later round whose refusals are as they should be; its number."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [
            line["round"] for line in rounds(out) if line["round"] > after and condition(line["refused"])
        ]
        return bool(found)

    wait_for(look, what)
    return found[0]


def left_out(refused: Refused) -> bool:
    return [one["site"] for one in refused] == [WEST]


def all_there(refused: Refused) -> bool:
    return not refused


def run_long(bed: Testbed, method: str, out: Path) -> int:
    """A run that goes on and on; its deadline, which fits this machine: some times what a round takes.

    The first round does not count: kernels may be compiled in it.
    """
    bed.start()
    bed.finish(experiment(method, training__rounds=WARM, engine__deadline=PATIENCE), out)
    line = (out / "metrics.jsonl").read_text().splitlines()[-1]
    deadline = max(25, round(4 * json.loads(line)["seconds"]))
    bed.submit(experiment(method, training__rounds=LONG, engine__deadline=deadline), out, resume=True)
    return deadline


def await_training(bed: Testbed, after: int) -> int:
    """Wait until the site that suffers has been asked to train in a later round; its number."""
    asked: list[int] = []

    def look() -> bool:
        files = (bed.site("west").path / "state").rglob("*-train.safetensors")
        asked[:] = [number for file in files if (number := int(file.stem.split("-")[0])) > after]
        return bool(asked)

    wait_for(look, "the site to be asked")
    return asked[0]


def test_a_site_killed_in_training_or_paused_is_left_out_and_rejoins(federation: Testbed, out: Path):
    deadline = run_long(federation, "scaffold", out)
    late = f"did not answer within {deadline} seconds"
    training = await_training(federation, after=WARM)
    federation.kill("west")
    missed = await_round(out, training - 1, "a round without the dead site", left_out)
    (refused,) = rounds(out)[missed - 1]["refused"]
    assert refused["reason"] in (late, *GONE)
    federation.start_site("west")
    back = await_round(out, missed, "a whole round again", all_there)

    training = await_training(federation, after=back)
    federation.signal("west", signal.SIGSTOP)
    missed = await_round(out, training - 1, "a round without the paused site", left_out)
    (refused,) = rounds(out)[missed - 1]["refused"]
    assert refused["reason"] == late or (deadline > MISSED and refused["reason"] in GONE)
    federation.signal("west", signal.SIGCONT)
    await_round(out, missed, "a whole round again", all_there)


def test_a_coordinator_killed_between_and_within_rounds_resumes(federation: Testbed, local: Local, out: Path):
    config = experiment(training__rounds=4, engine__deadline=PATIENCE)
    federation.start()
    federation.submit(config, out)
    await_round(out, 0, "the first round", all_there)
    kill_coordinator(federation)  # between rounds, or at the very beginning of the second
    federation.start_superlink()
    federation.submit(config, out, resume=True)
    begun = await_round(out, 1, "the second round", all_there)
    stored = federation.site("west").path / "state"
    wait_for(lambda: any(stored.rglob(f"{begun + 1:05}-*-claim.safetensors")), "a question of the next round")
    kill_coordinator(federation)  # within a round: a site has been asked
    federation.start_superlink()
    federation.finish(config, out, resume=True)
    same(local(config), out)


def test_restarted_sites_find_their_state(federation: Testbed, local: Local, out: Path):
    federation.start()
    federation.finish(experiment("scaffold", training__rounds=2, engine__deadline=PATIENCE), out)
    for name in ("north", "west"):
        federation.kill(name)
        federation.start_site(name)
    longer = experiment("scaffold", training__rounds=3, engine__deadline=PATIENCE)
    federation.finish(longer, out, resume=True)
    same(local(longer), out)


def kill_coordinator(federation: Testbed) -> None:
    """The superlink, the process that runs the rounds, and whoever follows it."""
    federation.kill("submit")
    federation.kill("superlink")
