"""Does the cost of a round follow the sentences that are active, whatever the number of sites?

    python benchmarks/scale.py [--sentences 500000] [--rounds 4] [--batch-size 8]

The built-in world in NYT10's shape is written as JSON lines, read and indexed from there as a user's own corpus
is, and opened a second time. Then two federations train Lazy MIL on it by turns, with two workers each:
100 sites of which 10 are active in a round, and 10,000 of which 1,000 are, so that both have a tenth of the
sentences active. A round is what `fedrel run` does in one, without evaluation, at E=3.

This is done twice: by kernels, where numba is installed, and in plain PyTorch (`FEDREL_KERNELS=off`). A site
costs some milliseconds besides its training: its messages are made, checked and added up, its sentences
gathered, all by an interpreter whose caches training has just emptied. In plain PyTorch they hardly count.
Kernels make training so fast that they count for more than half as much as the training of the 40 sentences
that such a site has won: both rounds are several times as fast, and the ratio is larger. `ratio` is PyTorch's,
`kernels_ratio` theirs.

With eight sentences a batch both federations take as many steps. With 16, a small site takes three (of 16, 16
and 8) where its share of a large site's would be 2.5, and the ratio is of that too: try `--batch-size 16`. The
first round of each is for warming up; seconds are medians, and the ratio is the median over turns, so that what
else the machine does falls on both.

Memory is that of all processes together, both federations' at once, sampled from the kernel's proportional set
size: what several processes map counts once. It is an upper bound of what one run needs.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedrel.config.data_sections import FileData
from fedrel.config.schema import Config, EngineSection, Evaluation, PartitionSection, Training
from fedrel.data.load import dataset
from fedrel.data.world import World, nyt10_shape
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from fedrel.tensors import compiling
from processes import Memory

FEW, MANY = 100, 10_000
FRACTION, EPOCHS, WORKERS = 0.1, 3, 2
LIMITS = {"ratio": 1.3, "peak_memory_bytes": 4 * 10**9, "index_seconds": 60.0, "open_seconds": 2.0}

Result = TypeVar("Result")


def write_world(folder: Path, sentences: int) -> None:
    """Write the world's sentences, all of them for training, and its relations, as OpenNRE's files."""
    shape = nyt10_shape()
    pairs = round(sentences * shape.pairs / shape.sentences) if shape.pairs else None
    world = World(replace(shape, sentences=sentences, pairs=pairs, dev=0.0, test=0.0))
    relations = {relation: number for number, relation in enumerate(world.relations)}
    (folder / "relations.json").write_text(json.dumps(relations), encoding="utf-8")
    with (folder / "sentences.jsonl").open("w", encoding="utf-8") as file:
        for _, one in world.instances():
            line = {
                "text": one.text,
                "h": {"id": one.head.id, "name": one.head.name, "pos": [one.head.start, one.head.end]},
                "t": {"id": one.tail.id, "name": one.tail.name, "pos": [one.tail.start, one.tail.end]},
                "relation": one.relation,
                "source": one.source,
                "expresses": one.expresses,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def experiment(folder: Path, sites: int, batch_size: int) -> Config:
    """Lazy MIL on those files with so many sites."""
    never = 10**6
    return Config(
        method="lazy-mil",
        data=FileData(
            root=folder,
            pool=[Path("sentences.jsonl")],
            fractions=(0.998, 0.001, 0.001),
            relations=Path("relations.json"),
        ),
        partition=PartitionSection(sites=sites),
        training=Training(rounds=never, fraction=FRACTION, epochs=EPOCHS, batch_size=batch_size),
        evaluation=Evaluation(every=never),
        engine=EngineSection(workers=WORKERS),
    )


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """How long some work takes, and what comes of it."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def measure(folder: Path, sentences: int, rounds: int, batch_size: int) -> dict[str, Any]:
    """Everything, in the order that the module's docstring tells."""
    writing = multiprocessing.get_context("spawn").Process(target=write_world, args=(folder, sentences))
    begin = time.perf_counter()
    writing.start()
    writing.join()
    if writing.exitcode:
        raise SystemExit("the world could not be written")
    size = (folder / "sentences.jsonl").stat().st_size
    print(
        f"wrote {sentences:,} sentences, {size / 1e6:,.0f} MB, in {time.perf_counter() - begin:.0f} s",
        flush=True,
    )

    memory = Memory()
    with memory.watched():
        section = experiment(folder, FEW, batch_size).data
        index_seconds, data = timed(lambda: dataset(section))
        open_seconds, _ = timed(lambda: dataset(section))
        print(f"read and indexed in {index_seconds:.1f} s, opened again in {open_seconds:.2f} s", flush=True)
        print(f"memory of reading: {memory.peak / 1e9:.2f} GB", flush=True)

        result = rounds_by_turns(folder, "", "off", rounds, batch_size)
        if importlib.util.find_spec("numba"):
            result |= rounds_by_turns(folder, "kernels_", "on", rounds, batch_size)

    return result | {
        "peak_memory_bytes": memory.peak,
        "index_seconds": round(index_seconds, 2),
        "open_seconds": round(open_seconds, 3),
        "sentences": len(data.corpus),
        "batch_size": batch_size,
    }


def rounds_by_turns(
    folder: Path, prefix: str, with_kernels: str, rounds: int, batch_size: int
) -> dict[str, Any]:
    """Rounds of both federations by turns: seconds of each, and their ratio."""
    os.environ["FEDREL_KERNELS"] = with_kernels
    compiling.has_numba.cache_clear()
    seconds: dict[int, list[float]] = {FEW: [], MANY: []}
    with ExitStack() as engines:
        sessions = {}
        for sites in (FEW, MANY):
            config = experiment(folder, sites, batch_size)
            ready = prepare(config)
            carrier = engines.enter_context(engine(config, ready, folder / "sites"))
            sessions[sites] = Session(config, ready, carrier, None)
        print(f"\nkernels {with_kernels:8}{'K=100':>26}{'K=10,000':>34}{'ratio':>8}")
        print(f"{'round':8}" + 2 * f"{'sites':>8}{'examples':>12}{'seconds':>14}")
        for turn in range(rounds + 1):
            cells = ""
            for sites, session in sessions.items():
                spent, line = timed(session.next_round)
                seconds[sites].append(spent)
                cells += f"{len(line.active):8,}{line.examples:12,}{spent:14.2f}"
            ratio = seconds[MANY][-1] / seconds[FEW][-1]
            print(f"{turn or 'warm-up':<8}{cells}{ratio:8.2f}", flush=True)
    few, many = seconds[FEW][1:], seconds[MANY][1:]
    return {
        f"{prefix}round_seconds_k100": round(statistics.median(few), 3),
        f"{prefix}round_seconds_k10000": round(statistics.median(many), 3),
        f"{prefix}ratio": round(statistics.median(m / f for m, f in zip(many, few, strict=True)), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Seconds a round and memory with 100 and with 10,000 sites.")
    parser.add_argument("--sentences", type=int, default=500_000, help="how many (default: 500,000)")
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds of each (default: 4)")
    parser.add_argument("--batch-size", type=int, default=8, help="B (default: 8)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedrel-scale-") as folder:
        os.environ["FEDREL_CACHE"] = str(Path(folder) / "cache")
        result = measure(Path(folder), arguments.sentences, arguments.rounds, arguments.batch_size)
    missed = [name for name, limit in LIMITS.items() if result[name] > limit]
    print("\n" + "\n".join(f"{n:20}{result[n]:>16,}  limit {limit:,}" for n, limit in LIMITS.items()))
    print(f"{'kernels_ratio':20}{result.get('kernels_ratio', 'no numba'):>16}  none set")
    print(json.dumps(result))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
