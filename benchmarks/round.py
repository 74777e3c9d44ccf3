"""How long does a whole round of Lazy MIL take at NYT10's shape, and where does the time of a run go?

    python benchmarks/round.py [--turns 5] [--rounds 50] [--threads 2]

The built-in world has NYT10's shape: 467,000 sentences to train on, 55,000 for dev, 172,000 for test and
53 relations; K=100, C=0.1, B=32, E=3.

Turns: a round of ours (claims, winners, training, averaging) and the published-style loop of `published.py` take
turns. Ours is what `fedrel run` does, with its default engine. The published-style loop does a part of the same
round, in one process with two threads, and its time is scaled up: of the ten sites it does one, which scores
all its sentences, trains one of the E epochs on what it won, and adds its weights to a sum. Then both evaluate,
the published-style loop 4,096 of the test sentences. Padding and cutting batches is not counted for it. Its
claims must be ours to 1e-4, or the benchmark fails. Ratios are medians over turns.

Rounds: `fedrel.runs.train.run` as it is, with evaluation on the 172,000 test sentences in every round, and where
the time went. "else" is what the coordinator does beside: checking and counting messages.

Where other work runs beside, the clock says little, and a loop on two threads suffers most: they wait for each
other. So the processors' time of all processes is given, too, and `--threads 1` runs the published-style loop on
one thread: `cpu_ratio` then compares what both ask of the processors. Memory is the peak of the proportional set
sizes of all processes. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from fedrel.cli.progress import watching
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.bags import singles
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.site_data import SiteData
from fedrel.methods.lazy_mil import first_of_highest
from fedrel.runs import train as experiment
from fedrel.runs.engines import engine
from fedrel.runs.prepare import Preparation, prepare
from fedrel.runs.train import Session
from fedrel.tensors.weights import Weights
from phases import Phases
from processes import Memory, cpu_seconds
from published import Padded, Published, pad, score, train

BATCH = 32  # sentences that the published-style loop is fastest with, in scoring too
EVALUATED = 4096  # sentences that it evaluates
LONGEST = 120  # tokens it pads to
TOLERANCE = 1e-4  # of a claim's probability
LEAST_RATIO, MOST_SECONDS = 20.0, 480.0
NEVER = 10**6

Batches = list[tuple[Padded, torch.Tensor]]


@dataclass(frozen=True)
class Time:
    """By the clock, and of the processors."""

    seconds: float
    cpu: float

    @classmethod
    def now(cls) -> Time:
        """To be subtracted from a later one."""
        return cls(time.perf_counter(), cpu_seconds())

    def __sub__(self, other: Time) -> Time:
        return Time(self.seconds - other.seconds, self.cpu - other.cpu)

    def __add__(self, other: Time) -> Time:
        return Time(self.seconds + other.seconds, self.cpu + other.cpu)

    def __mul__(self, factor: float) -> Time:
        return Time(self.seconds * factor, self.cpu * factor)

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of processors)"


class Recorder:
    """An engine that keeps a round's claims and winners."""

    def __init__(self, carrier: Any) -> None:
        self.score = carrier.score
        self.holdings = carrier.holdings
        self.claims: dict[int, npt.NDArray[np.float32]] = {}
        self.won: dict[int, npt.NDArray[np.int32]] = {}
        self._carrier = carrier

    def ask(self, phase: str, round_: int, shared: Any, own: Mapping[int, Any]) -> Iterator[Any]:
        """Ask, and keep what says who claims and wins what."""
        if phase == "train":
            self.won = {site: arrays["Winners.index"] for site, arrays in own.items()}
        for site, answer in self._carrier.ask(phase, round_, shared, own):
            if phase == "claim":
                self.claims[site] = answer.arrays["value"]
            yield site, answer


class PublishedLoop:
    """What the published-style loop does in a round, on batches that were padded beforehand."""

    def __init__(self, config: Config, ready: Preparation) -> None:
        self._site_data, self._training = ready.site_data, config.training
        relations = len(ready.dataset.corpus.relations)
        ours = extractor_kind("pcnn").build(config.extractor, ready.site_data.inputs, relations, config.seed)
        assert isinstance(ours, PCNN)
        self._net = Published.like(ours, ours.dropout)
        self._evaluated = padded(ready.site_data, ready.dataset.test[:EVALUATED])

    def round(
        self, weights: Weights, site: int, won: npt.NDArray[np.int32]
    ) -> tuple[Time, npt.NDArray[np.float32]]:
        """Its time for one site, with all E epochs, and its claims."""
        rows = self._site_data.partition.rows(site)
        bags = self._site_data.bags(rows)
        scored, trained = padded(self._site_data, bags.rows), padded(self._site_data, rows[won])
        begin = Time.now()
        self._net.load({name: torch.from_numpy(array) for name, array in weights.items()})
        values = np.concatenate(
            [score(self._net, inputs).numpy()[np.arange(len(labels)), labels] for inputs, labels in scored]
        )
        best = first_of_highest(values, bags.bounds)
        claimed = Time.now()
        rate, decay = self._training.learning_rate_in(1), self._training.weight_decay
        optimiser = torch.optim.SGD(self._net.parameters(), lr=rate, weight_decay=decay, fused=True)
        for inputs, labels in trained:
            train(self._net, optimiser, inputs, labels)
        fitted = Time.now()
        total = {name: torch.from_numpy(array) * 1.0 for name, array in weights.items()}
        with torch.no_grad():
            for name, tensor in self._net.as_ours().items():
                total[name] += len(won) * tensor
        spent = (claimed - begin) + (fitted - claimed) * self._training.epochs + (Time.now() - fitted)
        return spent, values[best]

    def evaluate(self) -> Time:
        """Its time for some of the test sentences."""
        begin = Time.now()
        for inputs, _ in self._evaluated:
            score(self._net, inputs)
        return Time.now() - begin


def padded(site_data: SiteData, rows: npt.NDArray[np.int64]) -> Batches:
    """Sentences in padded batches, with their labels."""
    found = []
    for begin in range(0, len(rows), BATCH):
        part = rows[begin : begin + BATCH]
        labels = np.asarray(site_data.corpus.relation[part], dtype=np.int64)
        batch = site_data.inputs.batch(singles(part, labels, part))
        found.append((pad(batch, LONGEST), batch.labels))
    return found


def take_turns(config: Config, ready: Preparation, turns: int, threads: int, folder: Path) -> dict[str, Any]:
    """Rounds of ours, and the published-style loop's part of each."""
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"every": NEVER})})
    test, published = ready.dataset.test, PublishedLoop(config, ready)
    ours: list[Time] = []
    theirs: list[Time] = []
    our_evaluation: list[Time] = []
    their_evaluation: list[Time] = []
    with engine(config, ready, folder / "sites") as carrier:
        recorder = Recorder(carrier)
        session = Session(config, ready, recorder, None)  # type: ignore[arg-type]
        for turn in range(turns + 1):
            weights = session.checkpoint().weights
            begin = Time.now()
            line = session.next_round()
            middle = Time.now()
            session.evaluate(weights, test)
            end = Time.now()
            if not turn:  # for warming up: kernels are compiled, files are read
                continue
            active = line.active
            site = active[turn % len(active)]
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            one, claims = published.round(weights, site, recorder.won[site])
            part = published.evaluate()
            torch.set_num_threads(before)
            apart = float(np.abs(claims - recorder.claims[site]).max())
            if apart > TOLERANCE:
                raise SystemExit(f"the claims of site {site} differ by {apart:.1e}")
            ours.append(middle - begin)
            our_evaluation.append(end - middle)
            theirs.append(one * len(active))
            their_evaluation.append(part * (len(test) / EVALUATED))
            print(f"turn {turn}: ours {ours[-1]}, published-style {theirs[-1]}", flush=True)
            print(f"  evaluation: {our_evaluation[-1]}, published-style {their_evaluation[-1]}", flush=True)
    return {
        "ratio": ratio(theirs, ours, "seconds"),
        "cpu_ratio": ratio(theirs, ours, "cpu"),
        "evaluation_ratio": ratio(their_evaluation, our_evaluation, "seconds"),
        "evaluation_cpu_ratio": ratio(their_evaluation, our_evaluation, "cpu"),
        "round_seconds": median(ours, "seconds"),
        "round_cpu_seconds": median(ours, "cpu"),
        "published_seconds": median(theirs, "seconds"),
        "published_cpu_seconds": median(theirs, "cpu"),
        "published_threads": threads,
        "sentences_scored": int(ready.site_data.partition.sizes[active].sum()),
        "sentences_trained": config.training.epochs * line.examples,
        "turns": turns,
    }


def median(times: list[Time], what: str) -> float:
    return round(statistics.median(getattr(one, what) for one in times), 3)


def ratio(theirs: list[Time], ours: list[Time], what: str) -> float:
    pairs = zip(theirs, ours, strict=True)
    return round(statistics.median(getattr(their, what) / getattr(our, what) for their, our in pairs), 1)


def whole_run(config: Config, ready: Preparation, rounds: int, folder: Path) -> dict[str, Any]:
    """A run of so many rounds, by phase."""
    training = config.training.model_copy(update={"rounds": rounds})
    config = config.model_copy(update={"training": training})
    evaluated = replace(ready, dataset=replace(ready.dataset, dev=ready.dataset.test))
    phases, memory = Phases(), Memory(every=1.0)
    with (
        patch.object(experiment, "prepare", lambda *_: evaluated),
        memory.watched(),
        watching() as watch,
        phases.watched(),
    ):
        result = experiment.run(config, folder / "run", watcher=watch("rounds", config))
    total, used = sum(phases.seconds.values()), sum(phases.cpu.values())
    print(f"{'phase':24}{'seconds':>10}{'':>8}{'processors':>14}")
    for phase, seconds in phases.seconds.most_common():
        cpu = phases.cpu[phase]
        print(f"{phase:24}{seconds:10.1f}{seconds / total:8.1%}{cpu:12.1f} s{cpu / used:8.1%}")
    return {
        "rounds": rounds,
        "seconds": round(total, 1),
        "cpu_seconds": round(used, 1),
        "phases": {phase: round(seconds, 2) for phase, seconds in phases.seconds.most_common()},
        "phases_cpu": {phase: round(phases.cpu[phase], 2) for phase, _ in phases.seconds.most_common()},
        "peak_memory_bytes": memory.peak,
        "evaluated_sentences": len(ready.dataset.test),
        "metrics": {name: round(value, 4) for name, value in result.metrics.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="A round of Lazy MIL, and 50 of them, at NYT10's shape.")
    parser.add_argument("--turns", type=int, default=5, help="rounds against the published-style loop (5)")
    parser.add_argument("--threads", type=int, default=2, help="of the published-style loop (2)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of the run by phase (50)")
    arguments = parser.parse_args()
    config = load_config("world/nyt10-shape")
    begin = Time.now()
    ready = prepare(config)
    print(f"prepared: {Time.now() - begin}", flush=True)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fedrel-round-") as folder:
        if arguments.turns:
            result |= take_turns(config, ready, arguments.turns, arguments.threads, Path(folder))
        if arguments.rounds:
            result |= whole_run(config, ready, arguments.rounds, Path(folder))
    print(json.dumps(result))
    return int(result.get("ratio", LEAST_RATIO) < LEAST_RATIO or result.get("seconds", 0) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
