"""What does Flower's simulation cost beside our own engines, on the same rounds of the same run?

    python benchmarks/engines.py [--sentences 20000] [--sites 100] [--rounds 8]

Three processes train Lazy MIL on the built-in world from the same seed: in one process, with two workers, and with
Flower's simulation, whose virtual nodes two of Ray's processes serve. They take turns, a round each, so that what
else the machine does falls on all. The first round of each, in which Ray starts and kernels are compiled, is for
warming up; seconds are medians, and ratios are medians over turns. Nothing is evaluated.

Memory is the peak of the proportional set sizes of a process and all that it started. After every round the three
must have the same weights to the bit, or the benchmark fails. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedrel.config.config_sections import WorldData
from fedrel.config.schema import Config, EngineSection, Evaluation, PartitionSection, Training
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from processes import Memory

KINDS = ("local", "workers", "flower-simulation")
WORKERS = 2
NEVER = 10**6


def experiment(kind: str, sentences: int, sites: int) -> Config:
    """Lazy MIL at its published size, a tenth of the sites active in a round."""
    return Config.model_validate(
        {
            "method": "lazy-mil",
            "data": WorldData(sentences=sentences),
            "partition": PartitionSection(sites=sites),
            "training": Training(rounds=NEVER, fraction=0.1),
            "evaluation": Evaluation(every=NEVER),
            "engine": EngineSection.model_validate({"kind": kind, "workers": WORKERS}),
        }
    )


def serve(kind: str, sentences: int, sites: int) -> None:
    """One engine's process: a round for every line that comes in, a line of JSON for every round."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    config = experiment(kind, sentences, sites)
    memory = Memory()
    with memory.watched(), tempfile.TemporaryDirectory(prefix="fedrel-engines-") as states:
        ready = prepare(config)
        with engine(config, ready, Path(states)) as carrier:
            session = Session(config, ready, carrier, None)
            for _ in sys.stdin:
                begin = time.perf_counter()
                line = session.next_round()
                seconds = time.perf_counter() - begin
                digest = hashlib.sha256()
                for name, tensor in sorted(session.checkpoint().weights.items()):
                    digest.update(name.encode() + tensor.tobytes())
                said = {"seconds": seconds, "weights": digest.hexdigest(), "bytes": line.bytes.up}
                print(json.dumps(said | {"memory": memory.peak}), file=answers, flush=True)


def measure(sentences: int, sites: int, rounds: int) -> dict[str, Any]:
    """Let the engines take turns."""
    with ExitStack() as running:
        processes = {
            kind: running.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        __file__,
                        "--serve",
                        kind,
                        f"--sentences={sentences}",
                        f"--sites={sites}",
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for kind in KINDS
        }
        said: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        print(f"{'round':8}" + "".join(f"{kind:>20}" for kind in KINDS))
        for turn in range(rounds + 1):
            for kind, process in processes.items():
                said[kind].append(ask(process, kind))
            if len({said[kind][-1]["weights"] for kind in KINDS}) > 1:
                raise SystemExit(f"the engines disagree about the weights of round {turn + 1}")
            cells = "".join(f"{said[kind][-1]['seconds']:18.3f} s" for kind in KINDS)
            print(f"{turn or 'warm-up':<8}{cells}", flush=True)
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
    seconds = {kind: [one["seconds"] for one in said[kind][1:]] for kind in KINDS}
    flower = seconds["flower-simulation"]
    return {
        "round_seconds": {kind: round(statistics.median(seconds[kind]), 4) for kind in KINDS},
        "warm_up_seconds": {kind: round(said[kind][0]["seconds"], 2) for kind in KINDS},
        "peak_memory_bytes": {kind: said[kind][-1]["memory"] for kind in KINDS},
        "flower_to_local": ratio(flower, seconds["local"]),
        "flower_to_workers": ratio(flower, seconds["workers"]),
        "bytes_up_a_round": said["local"][-1]["bytes"],
        "same_weights": True,
        "sentences": sentences,
        "sites": sites,
        "active": sites // 10,
        "rounds": rounds,
    }


def ask(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """One engine's next round."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("next\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{kind} ended with exit code {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def ratio(one: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Seconds a round and memory of three engines on the same run."
    )
    parser.add_argument("--sentences", type=int, default=20_000, help="of the world (default: 20,000)")
    parser.add_argument("--sites", type=int, default=100, help="K (default: 100)")
    parser.add_argument("--rounds", type=int, default=8, help="measured rounds of each (default: 8)")
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.sentences, arguments.sites)
    else:
        print(json.dumps(measure(arguments.sentences, arguments.sites, arguments.rounds)))


if __name__ == "__main__":
    main()
