"""How long do the bag heads and the methods that correct training take, beside plain cross-entropy?

    FEDREL_DATA=FOLDER python benchmarks/heads.py [--rounds 6] [--out FILE]

On the free part of NYT10 (`presets/lazy_mil/nyt10-part.toml`): `ave`, `att` and `att_ra` beside `none`. On CPR with
PCNN (`presets/fedcmc/cpr-pcnn.toml`): FedProx, SCAFFOLD, FedDyn, FedRS, FedLC and FedCMC beside FedAvg, which is
`none` under another name. All methods of a corpus take turns, a round each from the same seed, with two workers, so
that what else the machine does falls on all. The first round, in which kernels are compiled and sites have no state
yet, is for warming up.

A ratio is the median over turns of a method's seconds to those of `none`: of a round, from the draw of the sites to
the next weights, without evaluation. `evaluation` has the same of scoring and ranking the dev set, and `whole` of
rounds with an evaluation as often as the preset asks for it. The last line of the output is JSON.
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

from fedrel.config.sources import load_config
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session

PRESETS = Path(__file__).parent.parent / "presets"
PARTS = {
    PRESETS / "lazy_mil" / "nyt10-part.toml": ("none", "ave", "att", "att-ra"),
    PRESETS / "fedcmc" / "cpr-pcnn.toml": (
        *("fedavg", "fedprox", "scaffold", "feddyn", "fedrs", "fedlc", "fedcmc"),
    ),
}
LIMIT = 1.5
WORKERS = 2
NEVER = 10**6


def measure(preset: Path, methods: tuple[str, ...], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every method's rounds and evaluations, by turns."""
    config = load_config(preset, [f"method={methods[0]}", f"engine.workers={WORKERS}"])
    every = config.evaluation.every
    config = config.with_settings([f"training.rounds={NEVER}", f"evaluation.every={NEVER}"])
    ready = prepare(config)
    found: dict[str, dict[str, list[float]]] = {
        kind: {name: [] for name in methods} for kind in ("round", "evaluation", "whole")
    }
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="fedrel-heads-")))
        sessions = {}
        for name in methods:
            own = config.with_settings([f"method={name}"])
            carrier = running.enter_context(engine(own, ready, folder / name))
            sessions[name] = Session(own, ready, carrier, None)
        print(f"\n{preset.stem:18}" + "".join(f"{name:>16}" for name in methods) + "   (round + evaluation)")
        for turn in range(rounds + 1):
            cells = ""
            for name, session in sessions.items():
                begin = time.perf_counter()
                session.next_round()
                trained = time.perf_counter()
                session.evaluate(session.checkpoint().weights, ready.dataset.dev)
                evaluated = time.perf_counter()
                cells += f"{trained - begin:9.3f} +{evaluated - trained:6.3f}"
                if turn:
                    found["round"][name].append(trained - begin)
                    found["evaluation"][name].append(evaluated - trained)
                    found["whole"][name].append(trained - begin + (evaluated - trained) / every)
            print(f"{turn or 'warm-up':<18}{cells}", flush=True)
    return found


def ratios(seconds: dict[str, list[float]], methods: tuple[str, ...]) -> dict[str, float]:
    """Each method's seconds to those of the first, the median over turns."""
    plain = seconds[methods[0]]
    return {
        name.replace("-", "_"): round(
            statistics.median(a / b for a, b in zip(seconds[name], plain, strict=True)), 3
        )
        for name in methods[1:]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="The time of heads and corrections beside plain training.")
    parser.add_argument("--rounds", type=int, default=6, help="measured rounds of each (default: 6)")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"evaluation": {}, "whole": {}, "seconds": {}}
    for preset, methods in PARTS.items():
        found = measure(preset, methods, arguments.rounds)
        result |= ratios(found["round"], methods)
        result["evaluation"] |= ratios(found["evaluation"], methods)
        result["whole"] |= ratios(found["whole"], methods)
        plain = {kind: round(statistics.median(of[methods[0]]), 3) for kind, of in found.items()}
        result["seconds"][preset.stem] = plain
    limited = {name: one for name, one in result.items() if isinstance(one, float)}
    print("\n" + "\n".join(f"{name:10}{one:8.2f}  limit {LIMIT}" for name, one in limited.items()))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 1 if any(one > LIMIT for one in limited.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
