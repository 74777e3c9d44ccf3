"""What do secure sums cost: masks a second, bytes and seconds of a site and of the coordinator, and a whole round?

    python benchmarks/secure_sum.py [--rounds 3] [--no-round] [--out FILE]

Three measurements in one run, on one thread unless said otherwise:

- `mask_mb_per_second`: adding an agreed mask to a model's numbers, in MB of numbers.
- `sessions`: a session with 10, 100 and 1,000 active sites and models of 1, 10, 50 MB. `site_seconds` is what one
  site computes beside its training, in all five steps; `coordinator_seconds` what the coordinator does if all sites
  answer, timed for one of them and multiplied: checking its signatures, adding its numbers, putting shares
  together, taking its own mask off. Bytes are those of one site, both ways.
- `round_ratio`: rounds of Lazy MIL with secure sums to those without at NYT10's shape (10 of 100 sites, 5.7 million
  word weights), by turns, with two workers.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedrel.config.privacy_sections import PrivacySection
from fedrel.config.sources import load_config
from fedrel.federation.messages import Message, payload
from fedrel.federation.secure_cohort import Cohort
from fedrel.federation.secure_messages import MaskedNumbers, SealedShares, Session, SignedLists
from fedrel.federation.secure_sum import Member, own_mask, session_name, signed_keys
from fedrel.federation.site_memory import SumNotes
from fedrel.federation.site_sums import SiteSums
from fedrel.privacy.peer_graph import quorum
from fedrel.privacy.secret_keys import SEALED, SimulatedSecrets, add_mask, combined, divided
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session as Training

PRESET = Path(__file__).parent.parent / "presets" / "world" / "nyt10-shape.toml"
SECRETS = SimulatedSecrets(1)
SESSION = Session(np.arange(16, dtype=np.uint8))
NEVER = 10**6


class Site:
    """A site as a session sees it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.round, self.messages = number, 1, []
        model: Any = SimpleNamespace(
            rules=None, privacy=PrivacySection(), secrets=SECRETS, notes=SumNotes(folder)
        )
        self.sums = SiteSums(model, number, 1)

    def received(self, kind: type[Message]) -> Any:
        """The message of this kind."""
        return next(one for one in self.messages if isinstance(one, kind))


def masks(megabytes: int = 50) -> float:
    """MB of numbers a second to which a mask is added."""
    numbers = np.zeros(megabytes * 10**6 // 4, np.uint32)
    add_mask(numbers, bytes(32), 1)
    started = time.perf_counter()
    for _ in range(3):
        add_mask(numbers, bytes(32), 1)
    return 3 * megabytes / (time.perf_counter() - started)


def seconds_to_combine(peers: int, times: int = 10) -> float:
    """For a quorum of so many peers' shares, once the first secret of a round was put together."""
    needed = quorum(peers)
    pieces = dict(list(enumerate(divided(bytes(16), needed, peers), start=1))[:needed])
    combined(pieces)
    started = time.perf_counter()
    for _ in range(times):
        combined(pieces)
    return (time.perf_counter() - started) / times


def session(count: int, megabytes: list[int], folder: Path) -> dict[int, dict[str, float]]:
    """A session of so many sites, with models of so many MB, as site 0 and the coordinator go through it."""
    sites = {number: Site(number, folder) for number in range(count)}
    seconds = dict.fromkeys(("shares", "lists", "unmask"), 0.0)

    def asked(number: int, *messages: Message) -> Any:
        sites[number].messages = [SESSION, *messages]
        return Member(sites[number])  # type: ignore[arg-type]

    name = session_name("", 1, SESSION)
    keys = {number: asked(number).public_keys() for number in sites}
    cohort = Cohort(name, keys, 1)
    peers = cohort.peers()
    around = peers[0].site.tolist()
    started = time.perf_counter()
    SECRETS.check(0, keys[0].signature.tobytes(), signed_keys(name, 0, keys[0].keys.tobytes()))
    checking = 2 * (time.perf_counter() - started)  # of the keys, and of the lists
    shares = {}
    for number in sorted(
        sites, reverse=True
    ):  # site 0 comes last, and is timed; others only if it is their peer
        if number in around:
            started = time.perf_counter()
            shares[number] = asked(number, peers[number]).shares()
            seconds["shares"] = time.perf_counter() - started
        else:
            shares[number] = SealedShares(np.zeros((len(peers[number].site), SEALED), np.uint8))
    cohort.shared(shares.items())
    to_mask, boxes = cohort.to_mask()
    combining = seconds_to_combine(len(around))
    found = {}
    for size in megabytes:
        numbers = np.zeros(size * 10**6 // 4, np.uint32)
        started = time.perf_counter()
        asked(0, to_mask[0], boxes[0]).masked(numbers)
        masking = time.perf_counter() - started
        started = time.perf_counter()
        add_mask(numbers, own_mask(bytes(16)), -1)
        np.add(numbers, numbers, out=numbers)
        summing = time.perf_counter() - started
        found[size] = {"masking": masking, "summing": summing, "masked_bytes_a_site": numbers.nbytes}
    cohort.total((number, MaskedNumbers(np.zeros(1, np.uint32))) for number in sites)
    told = [one[0] for one in cohort.to_sign()]
    started = time.perf_counter()
    signed = asked(0, *told).signed_lists()
    seconds["lists"] = time.perf_counter() - started
    text = cohort.lists.text
    of_all = {number: SECRETS.sign(number, text) for number in sites}
    cohort.signed((number, SignedLists(np.frombuffer(of_all[number], np.uint8))) for number in sites)
    told = [one[0] for one in cohort.to_unmask()]
    started = time.perf_counter()
    unmasked = asked(0, *told).unmasking()
    seconds["unmask"] = time.perf_counter() - started
    step = (to_mask[0], boxes[0])
    control = (keys[0], peers[0], shares[0], *step, *told[:3], signed, *told, unmasked, *(5 * [SESSION]))
    return {
        size: {
            "site_seconds": round(sum(seconds.values()) + one["masking"], 4),
            "coordinator_seconds": round(count * (checking + combining + one["summing"]), 3),
            "peers": len(around) - 1,
            "control_bytes_a_site": sum(payload(message.pack()) for message in control),
            "masked_bytes_a_site": one["masked_bytes_a_site"],
        }
        for size, one in found.items()
    }


def rounds(number: int) -> dict[str, Any]:
    """Rounds with and without secure sums at NYT10's shape, by turns."""
    config = load_config(
        PRESET, ["engine.workers=2", f"training.rounds={NEVER}", f"evaluation.every={NEVER}"]
    )
    ready = prepare(config)
    seconds: dict[str, list[float]] = {"plain": [], "secure": []}
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="fedrel-secure-")))
        sessions = {}
        for name in seconds:
            own = config.with_settings([f"privacy.secure_sum={str(name == 'secure').lower()}"])
            carrier = running.enter_context(engine(own, ready, folder / name))
            sessions[name] = Training(own, ready, carrier, None)
            sessions[name].next_round()
        for turn in range(number):
            for name, training in sessions.items():
                started = time.perf_counter()
                training.next_round()
                seconds[name].append(time.perf_counter() - started)
                print(f"turn {turn + 1}: {name} {seconds[name][-1]:.2f} s", flush=True)
    pairs = zip(seconds["secure"], seconds["plain"], strict=True)
    return {"round_ratio": round(statistics.median(s / p for s, p in pairs), 3), "round_seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-round", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {"mask_mb_per_second": round(masks())}
    print(f"masks: {result['mask_mb_per_second']} MB/s", flush=True)
    result["sessions"] = {}
    for count in (10, 100, 1000):
        with tempfile.TemporaryDirectory(prefix="fedrel-secure-") as folder:
            result["sessions"][count] = session(count, [1, 10, 50], Path(folder))
        print(count, "sites:", json.dumps(result["sessions"][count]), flush=True)
    if not given.no_round:
        result |= rounds(given.rounds)
    line = json.dumps(result)
    if given.out:
        given.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
