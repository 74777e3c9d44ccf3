"""What do a thousand sites that remember cost? MOON on PCNN: memory of a run, and disk of the sites' memories.

    python benchmarks/moon_state.py [--sites 1000] [--sentences 100000] [--rounds 12] [--fraction 0.1]

The built-in world in NYT10's shape (53 relations, 114,000 words, all of them in the model's vocabulary) is spread
evenly over the sites, and two worker processes train on it, without evaluation, at E=1. A site keeps a vector for
each of its sentences, of its last two rounds, so the disk that all sites together can need is bounded by

    2 files * sentences * 690 numbers * 4 bytes,

whatever the number of sites and rounds; the output has it beside what was found. Memory is that of all processes
together, as `scale.py` samples it, from the first round on.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from fedrel.config.schema import (
    Config,
    EngineSection,
    Evaluation,
    PartitionSection,
    Training,
    WorldData,
)
from fedrel.data.world import nyt10_shape
from fedrel.extractors.pcnn import PCNNSection
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from scale import Memory, timed

WORKERS = 2
LIMIT = 4 * 10**9  # bytes of memory


def experiment(arguments: argparse.Namespace) -> Config:
    """MOON on that world."""
    shape = nyt10_shape()
    same = {
        name: getattr(shape, name)
        for name in ("relations", "na_share", "bag_size", "mean_length", "vocabulary")
    }
    return Config(
        method="moon",
        data=WorldData(sentences=arguments.sentences, dev=0.01, test=0.01, **same),
        partition=PartitionSection(sites=arguments.sites),
        extractor=PCNNSection(min_count=1),
        training=Training(rounds=arguments.rounds, fraction=arguments.fraction, epochs=1),
        evaluation=Evaluation(every=10**6),
        engine=EngineSection(workers=WORKERS),
        case_study=0,
    )


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train, and look at memory and disk."""
    config = experiment(arguments)
    seconds, ready = timed(lambda: prepare(config))
    print(f"prepared {len(ready.dataset.train):,} sentences in {seconds:.0f} s", flush=True)
    memory, seen = Memory(), {}
    with memory.watched(), engine(config, ready, folder) as carrier:
        session = Session(config, ready, carrier, None)
        for _ in range(arguments.rounds):
            seconds, line = timed(session.next_round)
            seen |= dict.fromkeys(line.active)
            disk = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
            print(
                f"round {line['round']:3}: {len(seen):6,} sites have taken part, {seconds:6.1f} s, "
                f"disk {disk / 1e6:8.1f} MB, memory so far {memory.peak / 1e9:.2f} GB",
                flush=True,
            )
    weights = session.checkpoint().weights
    return {
        "sites": arguments.sites,
        "sentences": len(ready.dataset.train),
        "words": len(weights["words.weight"]),
        "rounds": arguments.rounds,
        "sites_seen": len(seen),
        "model_bytes": sum(array.nbytes for array in weights.values()),
        "peak_memory_bytes": memory.peak,
        "disk_bytes": disk,
        "disk_bound_bytes": 2 * 4 * len(ready.dataset.train) * weights["classifier.weight"].shape[1],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory and disk of MOON with many sites.")
    parser.add_argument("--sites", type=int, default=1000, help="K (default: 1,000)")
    parser.add_argument("--sentences", type=int, default=100_000, help="how many (default: 100,000)")
    parser.add_argument("--rounds", type=int, default=12, help="(default: 12)")
    parser.add_argument("--fraction", type=float, default=0.1, help="C (default: 0.1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedrel-moon-") as folder:
        os.environ["FEDREL_CACHE"] = str(Path(folder) / "cache")
        result = measure(arguments, Path(folder) / "sites")
    print(json.dumps(result))
    return int(result["peak_memory_bytes"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
