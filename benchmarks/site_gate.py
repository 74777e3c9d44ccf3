"""How much of a site's round is for its gate: judging weights, checking answers, recording, vouching?

    python benchmarks/site_gate.py [--rounds 6] [--words 100000]

The federation of docs/deployment.md with FedAvg, and one of its sites asked honestly for several rounds: each time
it gets back what it trained. Three experiments: words fixed, as is the default between real sites; words fixed and
sites that vouch for updates; words trained, so that a whole table of many words travels. Seconds are the
processor's, the mean over rounds but the first. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fedrel.deployment import site_gate
from fedrel.deployment.site_gate import SiteGate
from fedrel.federation.runner import Runner
from lying_coordinator import Site, write_text

PARTS = {
    "rules": (SiteGate, "allow"),
    "weights judged": (SiteGate, "receive"),
    "training": (Runner, "answer"),
    "recorded": (SiteGate, "record"),
    "of it, fingerprint of weights": (site_gate, "fingerprint"),
}


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Processor seconds in each part while it lasts."""
    seconds: dict[str, float] = defaultdict(float)

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*given, **named)
            finally:
                seconds[name] += time.process_time() - began

        return call

    with ExitStack() as stack:
        for name, (owner, attribute) in PARTS.items():
            stack.enter_context(patch.object(owner, attribute, wrapped(name, getattr(owner, attribute))))
        yield seconds


def measured(site: Site, rounds: int) -> dict[str, float]:
    """Seconds of each part in a round, and how much the gate adds to all else."""
    found: dict[str, float] = defaultdict(float)
    weights = site.initial
    for round_ in range(1, rounds + 1):
        with timed() as seconds:
            began = time.process_time()
            answer = site.ask("train", round_, weights)
            whole = time.process_time() - began
        assert answer.arrays is not None, answer.failure
        weights = site.whole(weights, answer.arrays)
        if round_ > 1:
            for name, value in {**seconds, "whole answer": whole}.items():
                found[name] += value / (rounds - 1)
    gate = sum(found[name] for name in ("rules", "weights judged", "recorded"))
    found["gate adds"] = gate / (found["whole answer"] - gate)
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    """Measure the three experiments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--words", type=int, default=100_000, help="in the table that is trained")
    chosen = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder)
        for experiment, settings in {
            "words fixed": {},
            "words fixed, vouched": {"vouched": True},
            "words trained": {"train_words": True},
        }.items():
            if settings.get("train_words"):
                vectors = (folder / "vectors.txt").read_text().splitlines()
                more = (f"word{n} {' '.join(['0.5'] * 50)}" for n in range(chosen.words - len(vectors)))
                (folder / "vectors.txt").write_text("\n".join([*vectors, *more]))
            site = Site(folder, "fedavg", chosen.rounds, experiment, **settings)
            found[experiment] = measured(site, chosen.rounds)
            print(f"{experiment:24}", found[experiment], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
