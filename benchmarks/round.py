"""How long does a whole round of Lazy MIL take at NYT10's shape, and where does the time of a run go?

    python benchmarks/round.py [--turns 5] [--rounds 50]

The built-in world has NYT10's shape: 467,000 sentences to train on, 55,000 for dev and 172,000 for test, 53 relations;
K=100, C=0.1, B=32, E=3.

Turns: a round of ours (claims, winners, training, averaging) and the published-style loop of `published.py` take
turns. Ours is what `fedrel run` does, with its default engine. The published-style loop does a part of the same
round, in one process with two threads, and its time is scaled up: of the ten sites it does one, which scores
all its sentences, trains one of the E epochs on what it won, and adds its weights to a sum. Then both evaluate,
the published-style loop 4,096 of the test sentences. Padding and preparing batches is not counted for it. Its claims
must be ours to 1e-4, or the benchmark fails. Ratios are medians over turns.

Rounds: `fedrel.experiment.run` as it is, with evaluation on the 172,000 test sentences in every round, and where the
time went. "else" is what the coordinator does beside: checking and counting messages.

Where other work runs beside, the clock says little. So the processors' time of all processes is given, too; for
that of the published-style loop, it does its part again on one thread, since two waste it in waiting for each other.
Memory is the peak of the proportional set sizes of all processes. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from fedrel import experiment
from fedrel.config import Config, load_config
from fedrel.console import watching
from fedrel.data.bags import singles
from fedrel.experiment import Session, engine
from fedrel.extractors.pcnn import PCNN
from fedrel.federation.weights import Weights
from fedrel.methods.lazy_mil import first_of_highest
from fedrel.prepare import Preparation, extractor, prepare
from fedrel.presets import config_path
from phases import Phases
from processes import Memory, cpu_seconds
from published import Padded, Published, pad, score, train

BATCH = 32  # sentences that the published-style loop is fastest with, in scoring too
EVALUATED = 4096  # sentences that it evaluates
TOLERANCE = 1e-4  # of a claim's probability
LEAST_RATIO, MOST_SECONDS = 20.0, 480.0

Ints = npt.NDArray[np.int64]


class Time(NamedTuple):
    """By the clock, and of the processors."""

    seconds: float
    cpu: float


class Recorder:
    """An engine that keeps a round's claims and winners."""

    def __init__(self, carrier: Any) -> None:
        self.score = carrier.score
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


class PublishedSite:
    """One site's round as the published-style loop does it, with everything padded beforehand."""

    def __init__(self, config: Config, ready: Preparation, site: int, won: npt.NDArray[np.int32]) -> None:
        self._materials, self._training = ready.materials, config.training
        rows = ready.materials.partition.rows(site)
        bags = ready.materials.bags(rows)
        self._bounds = bags.bounds
        self._scored = self._batches(bags.rows)
        self._trained = self._batches(rows[won])
        self._examples = len(won)

    def round(self, net: Published, weights: Weights, clock: Callable[[], float]) -> tuple[float, Any]:
        """Its time for all E epochs, and its claims."""
        begin = clock()
        net.load({name: torch.from_numpy(array) for name, array in weights.items()})
        values = np.concatenate(
            [score(net, inputs).numpy()[np.arange(len(of)), of] for inputs, of in self._scored]
        )
        best = first_of_highest(values, self._bounds)
        claimed = clock()
        rate, decay = self._training.learning_rate_in(1), self._training.weight_decay
        optimiser = torch.optim.SGD(net.parameters(), lr=rate, weight_decay=decay, fused=True)
        for inputs, of in self._trained:
            train(net, optimiser, inputs, of)
        fitted = clock()
        total = {name: torch.zeros_like(tensor) for name, tensor in net.as_ours().items()}
        with torch.no_grad():
            for name, tensor in net.as_ours().items():
                total[name] += self._examples * tensor
        spent = (claimed - begin) + self._training.epochs * (fitted - claimed) + (clock() - fitted)
        return spent, values[best]

    def _batches(self, rows: Ints) -> list[tuple[Padded, torch.Tensor]]:
        return padded(self._materials, rows)


def padded(materials: Any, rows: Ints) -> list[tuple[Padded, torch.Tensor]]:
    """Sentences in padded batches, with their labels."""
    labels = np.asarray(materials.corpus.relation[rows], dtype=np.int64)
    found = []
    for begin in range(0, len(rows), BATCH):
        part = slice(begin, begin + BATCH)
        batch = materials.inputs.batch(singles(rows[part], labels[part], rows[part]))
        found.append((pad(batch, 120), batch.labels))
    return found


def on_threads(threads: int, work: Callable[[], Any]) -> Any:
    """Do this with so many of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return work()
    finally:
        torch.set_num_threads(before)


def timed(work: Callable[[], Any]) -> tuple[Time, Any]:
    """How long our work takes, in whatever processes, and what comes of it."""
    begin, used = time.perf_counter(), cpu_seconds()
    result = work()
    return Time(time.perf_counter() - begin, cpu_seconds() - used), result


def take_turns(config: Config, ready: Preparation, turns: int, folder: Path) -> dict[str, Any]:
    """Rounds of ours, and the published-style loop's part of each."""
    never = config.evaluation.model_copy(update={"every": 10**6})
    config = config.model_copy(update={"evaluation": never})
    model = extractor(config.extractor, ready.materials.vocabulary_size, len(ready.dataset.text.relations), 0)
    assert isinstance(model, PCNN)
    net = Published(model, model.dropout)
    evaluated = padded(ready.materials, ready.dataset.test[:EVALUATED])
    found: dict[str, list[Time]] = {name: [] for name in ("ours", "theirs", "our_eval", "their_eval")}
    examples = []
    with engine(config, ready, folder / "sites") as carrier:
        recorder = Recorder(carrier)
        session = Session(config, ready, recorder, None)  # type: ignore[arg-type]
        for turn in range(turns + 1):
            weights = session.checkpoint().weights
            ours, line = timed(session.next_round)
            our_eval, _ = timed(lambda: session.evaluate(weights, ready.dataset.test))  # noqa: B023
            if not turn:  # for warming up: kernels are compiled, files are read
                continue
            site = line["active"][turn % len(line["active"])]
            part = PublishedSite(config, ready, site, recorder.won[site])
            two = on_threads(2, lambda: part.round(net, weights, time.perf_counter))  # noqa: B023
            one = on_threads(1, lambda: part.round(net, weights, time.process_time))  # noqa: B023
            apart = float(np.abs(two[1] - recorder.claims[site]).max())
            if apart > TOLERANCE:
                raise SystemExit(f"the claims of site {site} differ by {apart:.1e}")
            theirs = Time(*(len(line["active"]) * spent for spent, _ in (two, one)))
            scale = len(ready.dataset.test) / EVALUATED

            def evaluate(clock: Callable[[], float]) -> float:
                begin = clock()
                for inputs, _ in evaluated:
                    score(net, inputs)
                return scale * (clock() - begin)  # noqa: B023

            their_eval = Time(
                on_threads(2, lambda: evaluate(time.perf_counter)),  # noqa: B023
                on_threads(1, lambda: evaluate(time.process_time)),  # noqa: B023
            )
            examples.append(line["examples"])
            for name, spent in zip(found, (ours, theirs, our_eval, their_eval), strict=True):
                found[name].append(spent)
            print(
                f"turn {turn}: ours {ours.seconds:.2f} s ({ours.cpu:.2f} s of processors), published-style "
                f"{theirs.seconds:.0f} s ({theirs.cpu:.0f} s); evaluation {our_eval.seconds:.2f} s "
                f"({our_eval.cpu:.2f} s), published-style {their_eval.seconds:.0f} s ({their_eval.cpu:.0f} s)",
                flush=True,
            )
    return {
        "ratio": ratio(found["theirs"], found["ours"], "seconds"),
        "cpu_ratio": ratio(found["theirs"], found["ours"], "cpu"),
        "evaluation_ratio": ratio(found["their_eval"], found["our_eval"], "seconds"),
        "evaluation_cpu_ratio": ratio(found["their_eval"], found["our_eval"], "cpu"),
        "round_seconds": median(found["ours"], "seconds"),
        "round_cpu_seconds": median(found["ours"], "cpu"),
        "published_seconds": median(found["theirs"], "seconds"),
        "published_cpu_seconds": median(found["theirs"], "cpu"),
        "sentences_scored": int(ready.materials.partition.sizes.mean() * len(line["active"])),
        "sentences_trained": config.training.epochs * round(statistics.median(examples)),
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
    phases, memory = Phases(), Memory()
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
        "metrics": {name: round(value, 4) for name, value in result["metrics"].items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="A round of Lazy MIL, and 50 of them, at NYT10's shape.")
    parser.add_argument("--turns", type=int, default=5, help="rounds against the published-style loop (5)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of the run by phase (50)")
    arguments = parser.parse_args()
    config = load_config(config_path("world/nyt10-shape"))
    spent, ready = timed(lambda: prepare(config))
    print(f"prepared in {spent.seconds:.1f} s ({spent.cpu:.1f} s of processors)", flush=True)
    result: dict[str, Any] = {"prepare_seconds": round(spent.seconds, 1)}
    with tempfile.TemporaryDirectory(prefix="fedrel-round-") as folder:
        if arguments.turns:
            result |= take_turns(config, ready, arguments.turns, Path(folder))
        if arguments.rounds:
            result |= whole_run(config, ready, arguments.rounds, Path(folder))
    print(json.dumps(result))
    return int(result.get("ratio", LEAST_RATIO) < LEAST_RATIO or result.get("seconds", 0) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
