"""Whether bfloat16 costs accuracy: F1 on GAD, centralised, after three epochs, in both precisions.

    FEDREL_DATA=... python benchmarks/precision.py [--seeds 3] [--out FOLDER]

FedED's preset for GAD (MiniLM, AdamW), all training sentences in one place, B=16, three epochs; the same three
seeds in float32 and bfloat16. It needs the real corpus. A stopped run goes on where it was, if `--out` is given.

The last line of the output is JSON: F1 on the test set by precision and seed, their means, and the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from fedrel.config.sources import load_config
from fedrel.runs.compare import finished
from fedrel.runs.train import Watcher
from fedrel.tensors.machine import BFLOAT16, FLOAT32, processor

PRESET = Path(__file__).parent.parent / "presets" / "feded" / "gad.toml"
SETTINGS = [
    "method=centralised",
    "methods.centralised.share=1.0",
    "training.rounds=1",
    "training.epochs=3",
    "training.batch_size=16",
    "training.learning_rate=5e-5",
]
LIMIT = 0.01


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a folder to keep the runs in")
    given = parser.parse_args()
    if not os.environ.get("FEDREL_DATA"):
        print("set FEDREL_DATA to the folder that has GAD", file=sys.stderr)
        return 2
    f1: dict[str, list[float]] = {BFLOAT16: [], FLOAT32: []}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(1, given.seeds + 1):
            for precision, found in f1.items():
                config = load_config(PRESET, [*SETTINGS, f"seed={seed}", f"training.precision={precision}"])
                folder = (given.out or Path(scratch)) / f"{precision}-{seed}"
                found.append(finished(config, folder, Watcher()).metrics["f1"])
                print(f"{precision}, seed {seed}: F1 {found[-1]:.4f}", flush=True)
    means = {precision: sum(found) / len(found) for precision, found in f1.items()}
    difference = means[BFLOAT16] - means[FLOAT32]
    result = {
        "corpus": "gad, fold 1",
        "processor": processor(),
        "f1": {precision: [round(one, 4) for one in found] for precision, found in f1.items()},
        "mean": {precision: round(one, 4) for precision, one in means.items()},
        "difference": round(difference, 4),
    }
    print(json.dumps(result))
    return abs(difference) > LIMIT


if __name__ == "__main__":
    sys.exit(main())
