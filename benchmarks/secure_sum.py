"""What do secure sums cost: masks a second, bytes and seconds of a site and of the coordinator, and a whole round?

    python benchmarks/secure_sum.py [--rounds 3] [--no-round] [--out FILE]

Three measurements in one run, on one thread unless said otherwise:

- `mask_mb_per_second`: adding an agreed mask to a model's numbers, in MB of numbers.
- `sessions`: a session with 10, 100 and 1,000 active sites and models of 1, 10, 50 MB. `site_seconds` is what one
  site computes beside its training; `coordinator_seconds` what the coordinator does if all sites answer, timed for
  one of them and multiplied: adding its numbers, putting shares together, taking its own mask off. Bytes are those
  of one site, both ways.
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
from typing import Any

import numpy as np

from fedrel.config.schema import PrivacySection
from fedrel.config.sources import load_config
from fedrel.federation.messages import Message, payload
from fedrel.federation.secure_messages import Session
from fedrel.federation.secure_sum import Cohort, Member, own_mask, quorum
from fedrel.privacy.secret_keys import SimulatedSecrets, add_mask, combined, divided
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session as Training

PRESET = Path(__file__).parent.parent / "presets" / "world" / "nyt10-shape.toml"
SECRETS = SimulatedSecrets(1)
SESSION = Session(np.arange(16, dtype=np.uint8))
NEVER = 10**6


class Site:
    """A site as a session sees it."""

    def __init__(self, number: int) -> None:
        self.number, self.secret, self.messages = number, SECRETS.of(number), []
        self.privacy, self.round = PrivacySection(), 1
        self._keys: dict[int, bytes] = {}

    def registered_key(self, site: int) -> bytes:
        """Kept, as a real site has it on disk."""
        return self._keys.setdefault(site, SECRETS.registered_key(site))

    def received(self, kind: type[Message]) -> Any:
        """The message of this kind."""
        return next(one for one in self.messages if isinstance(one, kind))

    def once(self, purpose: str, digest: str) -> None:
        """Nobody asks twice here."""


def masks(megabytes: int = 50) -> float:
    """MB of numbers a second to which a mask is added."""
    numbers = np.zeros(megabytes * 10**6 // 4, np.uint32)
    add_mask(numbers, bytes(32), 1)
    started = time.perf_counter()
    for _ in range(3):
        add_mask(numbers, bytes(32), 1)
    return 3 * megabytes / (time.perf_counter() - started)


def session(count: int, megabytes: list[int]) -> dict[int, dict[str, float]]:
    """A session of so many sites, with models of so many MB, as site 0 and the coordinator go through it."""
    sites = {number: Site(number) for number in range(count)}
    keys = {}
    for number, site in sites.items():
        site.messages = [SESSION]
        keys[number] = Member(site).public_keys()
    cohort = Cohort(SESSION, 1, keys, 1, np.random.default_rng(0).permutation(count).tolist())
    peers = cohort.peers()
    around = peers[0].site.tolist()
    shares = {}
    for number in sorted(around, reverse=True):  # site 0 comes last, and is timed
        sites[number].messages = [SESSION, peers[number]]
        for peer in peers[number].site.tolist():
            sites[number].registered_key(peer)
        started = time.perf_counter()
        shares[number] = Member(sites[number]).shares()
        sharing = time.perf_counter() - started
    cohort.shared(shares.items())
    to_mask, boxes = cohort.to_mask()
    sites[0].messages = [SESSION, to_mask[0], boxes[0]]
    needed = quorum(len(around))
    seed = bytes(16)
    pieces = dict(list(enumerate(divided(seed, needed, len(around)), start=1))[:needed])
    started = time.perf_counter()
    combined(pieces)
    combining = time.perf_counter() - started
    control = (keys[0], peers[0], shares[0], to_mask[0], boxes[0], to_mask[0], boxes[0])
    found = {}
    for size in megabytes:
        numbers = np.zeros(size * 10**6 // 4, np.uint32)
        started = time.perf_counter()
        Member(sites[0]).masked(numbers)
        masking = time.perf_counter() - started
        started = time.perf_counter()
        add_mask(numbers, own_mask(seed), -1)
        np.add(numbers, numbers, out=numbers)
        summing = time.perf_counter() - started
        found[size] = {
            "site_seconds": round(sharing + masking, 4),
            "coordinator_seconds": round(count * (combining + summing), 3),
            "peers": len(around) - 1,
            "control_bytes_a_site": sum(payload(one.pack()) for one in control),
            "masked_bytes_a_site": numbers.nbytes,
        }
    return found


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
        result["sessions"][count] = session(count, [1, 10, 50])
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
