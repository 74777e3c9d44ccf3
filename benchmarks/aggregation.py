"""What do defences against lying sites cost? Rounds with a norm bound and without, and rules on large models.

    python benchmarks/aggregation.py [--turns 8] [--sites 40] [--megabytes 27]

Turns: a round of Lazy MIL on the preset `world/attacks` (40 sites, 10 of them active) with the plain mean, and the
same round with a norm bound and with the cap as well, in one process. Ratios are medians over turns of the
processor's time.

Rules: each rule over so many dense updates of that size, random numbers, once; beside them the plain weighted
mean. The updates are in memory up to 512 MB and in a file beyond, as in a run.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedrel.config.schema import AggregationSection
from fedrel.config.sources import load_config
from fedrel.privacy.trust import new_sum
from fedrel.privacy.update_blocks import UpdateStore
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session

VARIANTS: dict[str, dict[str, Any]] = {
    "mean": {},
    "norm_bound": {"aggregation.norm_bound": 2.0},
    "norm_bound_and_cap": {"aggregation.norm_bound": 1.0, "aggregation.share_cap": 2.0},
}


def rounds(turns: int) -> dict[str, float]:
    """The processor's time of a round, relative to the plain mean's."""
    config = load_config("world/attacks").with_settings({"engine.kind": "local", "evaluation.every": 1000})
    ready = prepare(config)
    spent: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as states, engine(config, ready, Path(states)) as local:
        sessions = {
            name: Session(config.with_settings(settings), ready, local, None)
            for name, settings in VARIANTS.items()
        }
        for session in sessions.values():
            session.next_round()  # kernels are compiled by then
        for _ in range(turns):
            for name, session in sessions.items():
                begun = time.process_time()
                session.next_round()
                spent[name].append(time.process_time() - begun)
    plain = spent["mean"]
    return {
        name: statistics.median(one / other for one, other in zip(own, plain, strict=True))
        for name, own in spent.items()
    }


def rules(sites: int, megabytes: int) -> dict[str, float]:
    """Seconds of each rule."""
    size, generator = megabytes * 250_000, np.random.default_rng(1)
    base = {"weights": np.zeros(size, np.float32)}
    store = UpdateStore()
    updates = [
        store.keep({"weights": generator.standard_normal(size, dtype=np.float32)}) for _ in range(sites)
    ]
    found = {}
    for rule in get_args(AggregationSection.model_fields["rule"].annotation):
        begun = time.perf_counter()
        total = new_sum(AggregationSection(rule=rule), base)
        for update in updates:
            total.add(update, 1.0)
        total.result()
        found[rule] = round(time.perf_counter() - begun, 2)
        print(f"{rule}: {found[rule]} s", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--sites", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=27)
    given = parser.parse_args()
    ratios = {name: round(ratio, 3) for name, ratio in rounds(given.turns).items()}
    print(f"a round, relative to the plain mean: {ratios}", flush=True)
    seconds = rules(given.sites, given.megabytes)
    print(json.dumps({**vars(given), "ratios": ratios, "seconds": seconds}))


if __name__ == "__main__":
    main()
