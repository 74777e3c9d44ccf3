"""What do secure sums cost: masks a second, bytes and seconds of a site and of the coordinator, and a whole round?

    python benchmarks/secure_sum.py [--rounds 3] [--no-round] [--out FILE]

Three measurements in one run, in seconds of the processor on one thread unless said otherwise:

- `mask_mb_per_second`: adding an agreed mask to a model's numbers, in MB of numbers.
- `sessions`: a session with 10, 100 and 1,000 active sites and models of 1, 10, 50 MB. `site_seconds` is what one
  site computes beside its training, in all five steps; `coordinator_seconds` what the coordinator does if all sites
  answer, timed for one of them and multiplied: checking its signatures, adding its numbers, putting shares
  together, taking its own mask off. Bytes are those of one site, both ways.
- `round_ratio`: rounds of Lazy MIL with secure sums to those without at NYT10's shape (10 of 100 sites, 5.7 million
  word weights), by turns, with two workers, by the clock; `round_processor_ratio` in the processor's seconds.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedrel.config.config_sections import PrivacySection
from fedrel.config.sources import load_config
from fedrel.federation.messages import Message, payload
from fedrel.federation.secure_cohort import Cohort
from fedrel.federation.secure_messages import MaskedNumbers, SealedShares, Session, SignedLists
from fedrel.federation.secure_sum import Member, own_mask, session_name, signed_keys
from fedrel.federation.site_memory import SumNotes
from fedrel.federation.site_sums import SiteSums
from fedrel.privacy.secret_keys import SEALED, SimulatedSecrets, add_mask, combined, divided, quorum
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
            rules=None, privacy=PrivacySection(), secrets=SECRETS, notes=SumNotes(folder), seed=1
        )
        self.sums = SiteSums(model, number, 1)

    def received(self, kind: type[Message]) -> Any:
        """The message of this kind."""
        return next(one for one in self.messages if isinstance(one, kind))


def masks(megabytes: int = 50) -> float:
    """MB of numbers a second to which a mask is added."""
    numbers = np.zeros(megabytes * 10**6 // 4, np.uint32)
    add_mask(numbers, bytes(32), 1)
    started = time.process_time()
    for _ in range(3):
        add_mask(numbers, bytes(32), 1)
    return 3 * megabytes / (time.process_time() - started)


def seconds_to_combine(peers: int, times: int = 10) -> float:
    """For a quorum of so many peers' shares, once the first secret of a round was put together."""
    needed = quorum(peers)
    pieces = dict(list(enumerate(divided(bytes(16), needed, peers), start=1))[:needed])
    combined(pieces)
    started = time.process_time()
    for _ in range(times):
        combined(pieces)
    return (time.process_time() - started) / times


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
    started = time.process_time()
    SECRETS.check(0, keys[0].signature.tobytes(), signed_keys(name, 0, keys[0].keys.tobytes()))
    checking = 2 * (time.process_time() - started)  # of the keys, and of the lists
    shares = {}
    for number in sorted(
        sites, reverse=True
    ):  # site 0 comes last, and is timed; others only if it is their peer
        if number in around:
            started = time.process_time()
            shares[number] = asked(number, peers[number]).shares()
            seconds["shares"] = time.process_time() - started
        else:
            shares[number] = SealedShares(np.zeros((len(peers[number].site), SEALED), np.uint8))
    cohort.shared(shares.items())
    to_mask, boxes = cohort.to_mask()
    combining = seconds_to_combine(len(around))
    found = {}
    for size in megabytes:
        numbers = np.zeros(size * 10**6 // 4, np.uint32)
        again = folder / f"{size}-mb"  # a site answers once: for another size, it must not know of this one
        shutil.copytree(folder / "000000", again / "000000")
        sites[0] = Site(0, again)
        started = time.process_time()
        asked(0, to_mask[0], boxes[0]).masked(numbers)
        masking = time.process_time() - started
        started = time.process_time()
        add_mask(numbers, own_mask(bytes(16)), -1)
        np.add(numbers, numbers, out=numbers)
        summing = time.process_time() - started
        found[size] = {"masking": masking, "summing": summing, "masked_bytes_a_site": numbers.nbytes}
    cohort.total((number, MaskedNumbers(np.zeros(1, np.uint32))) for number in sites)
    told = [one[0] for one in cohort.to_sign()]
    started = time.process_time()
    signed = asked(0, *told).signed_lists()
    seconds["lists"] = time.process_time() - started
    text = cohort.lists.text
    of_all = {number: SECRETS.sign(number, text) for number in sites}
    cohort.signed((number, SignedLists(np.frombuffer(of_all[number], np.uint8))) for number in sites)
    told = [one[0] for one in cohort.to_unmask()]
    started = time.process_time()
    unmasked = asked(0, *told).unmasking()
    seconds["unmask"] = time.process_time() - started
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
    processor: dict[str, list[float]] = {"plain": [], "secure": []}
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
                started, busy = time.perf_counter(), time.process_time()
                training.next_round()
                seconds[name].append(time.perf_counter() - started)
                processor[name].append(time.process_time() - busy)
                print(f"turn {turn + 1}: {name} {seconds[name][-1]:.2f} s", flush=True)

    def ratio(found: dict[str, list[float]]) -> float:
        pairs = zip(found["secure"], found["plain"], strict=True)
        return round(statistics.median(secure / plain for secure, plain in pairs), 3)

    return {
        "round_ratio": ratio(seconds),
        "round_processor_ratio": ratio(processor),
        "round_seconds": seconds,
        "round_processor_seconds": processor,
    }


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
