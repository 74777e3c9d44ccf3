"""Does the cost of a round follow the sentences that are active, whatever the number of sites?

    python benchmarks/scale.py [--sentences 500000] [--rounds 4] [--plain-rounds 2] [--batch-size 8] [--folder F]

The built-in world in NYT10's shape is written as JSON lines, read and indexed from there as a user's own corpus
is, and opened a second time. Then federations train Lazy MIL on it by turns, with two workers each: 100 sites of
which 10 are active in a round, and 10,000 of which 1,000 are, so that both have a tenth of the sentences active. A
round is what `fedrel run` does in one, without evaluation, at E=3.

This is done twice: by kernels, where numba is installed, and in plain PyTorch (`FEDREL_KERNELS=off`), which is so
slow that what a site costs besides its training hardly counts; `--plain-rounds 0` leaves it out. `kernel_ratio` is
the kernels', `ratio` PyTorch's.

By kernels, a third federation takes part: 100,000 sites with five sentences each, of which 1,000 are active, as
many as of 10,000. A round should take no longer because there are more sites that do nothing: `k100000_ratio` is
its time to that of 10,000 sites.

With eight sentences a batch, 100 and 10,000 sites take as many steps. With 16, a small site takes three (of 16, 16
and 8) where its share of a large site's would be 2.5, and the ratio is of that too: try `--batch-size 16`. The
first round of each is for warming up; seconds are medians, and a ratio is the median over turns, so that what else
the machine does falls on all. Where much else runs, `kernel_cpu_ratio` tells more: of the processors' time.

Memory is that of all processes together, all federations' at once, sampled from the kernel's proportional set
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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedrel.config.config_sections import FileData
from fedrel.config.schema import Config, EngineSection, Evaluation, PartitionSection, Training
from fedrel.data.load import dataset
from fedrel.data.world import World, nyt10_shape
from fedrel.extractors.registry import extractor_kind
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from fedrel.tensors import compiling
from processes import Memory, cpu_seconds

EPOCHS, WORKERS = 3, 2
FEW, MANY = ("k100", 100, 0.1), ("k10000", 10_000, 0.1)  # name, sites, and the share of them that is active
HUGE = ("k100000", 100_000, 0.01)
LIMITS = {
    "kernel_ratio": 1.3,
    "k100000_ratio": 1.0,
    "ratio": 1.3,
    "peak_memory_bytes": 4 * 10**9,
    "index_seconds": 60.0,
    "open_seconds": 2.0,
}

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


def experiment(folder: Path, sites: int, fraction: float, batch_size: int) -> Config:
    """Lazy MIL on those files with so many sites, and such a share of them active."""
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
        training=Training(rounds=never, fraction=fraction, epochs=EPOCHS, batch_size=batch_size),
        evaluation=Evaluation(every=never),
        engine=EngineSection(workers=WORKERS),
    )


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """How long some work takes, and what comes of it."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def measure(folder: Path, sentences: int, rounds: int, plain: int, batch_size: int) -> dict[str, Any]:
    """Everything, in the order that the module's docstring tells."""
    if not (folder / "sentences.jsonl").exists():
        write_in_another_process(folder, sentences)
    memory = Memory(every=2.0)  # to look holds up whoever asks for memory at that moment
    with memory.watched():
        section = experiment(folder, 1, 1.0, batch_size).data
        with extractor_kind("pcnn").compiling("none"):  # in other processes, as `fedrel run` does
            pass
        index_seconds, data = timed(lambda: dataset(section))
        open_seconds, _ = timed(lambda: dataset(section))
        print(f"read and indexed in {index_seconds:.1f} s, opened again in {open_seconds:.2f} s", flush=True)
        print(f"memory of reading: {memory.peak / 1e9:.2f} GB", flush=True)

        result: dict[str, Any] = {}
        if importlib.util.find_spec("numba"):
            seconds, cpu = rounds_by_turns(folder, (FEW, MANY, HUGE), "on", rounds, batch_size)
            result = {f"kernel_round_seconds_{name}": median(each) for name, each in seconds.items()}
            result["kernel_ratio"] = ratio(seconds["k10000"], seconds["k100"])
            result["kernel_cpu_ratio"] = ratio(cpu["k10000"], cpu["k100"])
            result["k100000_ratio"] = ratio(seconds["k100000"], seconds["k10000"])
        if plain:
            seconds, _ = rounds_by_turns(folder, (FEW, MANY), "off", plain, batch_size)
            result |= {f"round_seconds_{name}": median(each) for name, each in seconds.items()}
            result["ratio"] = ratio(seconds["k10000"], seconds["k100"])

    return result | {
        "peak_memory_bytes": memory.peak,
        "index_seconds": round(index_seconds, 2),
        "open_seconds": round(open_seconds, 3),
        "sentences": len(data.corpus),
        "batch_size": batch_size,
    }


def write_in_another_process(folder: Path, sentences: int) -> None:
    """Write the world; what that needs of memory is not measured."""
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


def rounds_by_turns(
    folder: Path, federations: Sequence[tuple[str, int, float]], kernels: str, rounds: int, batch_size: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The seconds of each federation's rounds, by the clock and of the processors."""
    os.environ["FEDREL_KERNELS"] = kernels
    compiling.has_numba.cache_clear()
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in federations}
    cpu: dict[str, list[float]] = {name: [] for name, _, _ in federations}
    with ExitStack() as engines:
        sessions = {}
        for name, sites, fraction in federations:
            config = experiment(folder, sites, fraction, batch_size)
            ready = prepare(config)
            carrier = engines.enter_context(engine(config, ready, folder / "sites"))
            sessions[name] = Session(config, ready, carrier, None)
        print(f"\nkernels {kernels}: sites active, examples, seconds")
        print(f"{'round':8}" + "".join(f"{name:>28}" for name in sessions))
        for turn in range(rounds + 1):
            cells = ""
            for name, session in sessions.items():
                before = cpu_seconds()
                spent, line = timed(session.next_round)
                if turn:  # the first is for warming up
                    seconds[name].append(spent)
                    cpu[name].append(cpu_seconds() - before)
                cells += f"{len(line.active):>10,}{line.examples:>9,}{spent:>9.2f}"
            print(f"{turn or 'warm-up':<8}{cells}", flush=True)
    return seconds, cpu


def median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 3)


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    return round(statistics.median(one / other for one, other in zip(these, those, strict=True)), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description="Seconds a round and memory with 100 to 100,000 sites.")
    parser.add_argument("--sentences", type=int, default=500_000, help="how many (default: 500,000)")
    parser.add_argument("--folder", type=Path, help="has the sentences of an earlier run, or gets them")
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds of each (default: 4)")
    parser.add_argument("--plain-rounds", type=int, default=2, help="measured in plain PyTorch (default: 2)")
    parser.add_argument("--batch-size", type=int, default=8, help="B (default: 8)")
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fedrel-scale-") as own:
        os.environ["FEDREL_CACHE"] = str(Path(own) / "cache")
        result = measure(
            arguments.folder or Path(own),
            arguments.sentences,
            arguments.rounds,
            arguments.plain_rounds,
            arguments.batch_size,
        )
    asked = {name: limit for name, limit in LIMITS.items() if name in result}
    missed = [name for name, limit in asked.items() if result[name] > limit]
    print("\n" + "\n".join(f"{name:20}{result[name]:>16,}  limit {limit:,}" for name, limit in asked.items()))
    print(json.dumps(result))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
