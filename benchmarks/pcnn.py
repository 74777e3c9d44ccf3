"""How fast PCNN trains and scores, against the loop that published implementations run, in one run.

    python benchmarks/pcnn.py [--seconds 60] [--cpu]

The published loop pads every sentence to 120 tokens and runs nn.Embedding with dense gradients, nn.Conv1d,
masked maxima and torch.optim.SGD(fused=True) in one process with two threads. Ours is what `fedrel run` runs for
sites that train on plain cross-entropy: `PCNN.fit`, and for scoring `sentence_probabilities`, in two threads of
one process, since kernels need no interpreter. A site has 1,024 sentences to train on, and scores 4,096 before the
weights change. Beside it runs the same in plain PyTorch, as where numba is not installed: `HEADS["none"]` and `SGD`
in two processes with one thread each. All see the same sentences at NYT10's shape. They take turns in
short slices, and a ratio is the median over turns. ONE trains on bags of 1.7 sentences on average, of which every
step scores all and trains on the likeliest; its rates count all.

Before that, all train on the same batches without dropout, and the run fails if they differ. For plain PyTorch the
weights decide, in float64: in float32 a near-tie between two tokens for a maximum can go either way, in the
published loop as in ours, and moves one filter by about 1e-4. Kernels know float32 only, so for them the losses do,
which a near-tie hardly moves: every step's must be within 1e-4 of the published loop's in float64. How far their
weights are is printed beside the published loop's own distance from its float64 self.

The last line of the output is JSON. `gemm_fraction` is the arithmetic of a convolution without padding, forward
and backward, that our training rate stands for, over the peak of a large sgemm. Run it on an idle machine:
other work slows the two-threaded loop more than ours. Where none is to be had, `--cpu` counts seconds of a
processor instead of the clock's. The published loop then runs on one thread, and its rates are doubled, as if two
were twice as fast, which they are not quite.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import nn

from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS, bag_of_sentence, sentence_probabilities
from fedrel.extractors.objective import Objective
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.methods.lazy_mil import first_of_highest
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors import compiling
from published import Published, pad, score, train

VOCABULARY, RELATIONS, BATCH = 114_042, 53, 32
SCORED_AT_ONCE, PUBLISHED_SCORED_AT_ONCE = 512, 32  # for each loop the size it is fastest with
ZIPF = 1.18  # 1,280 tokens then have about 580 distinct words
MEAN_LENGTH, LONGEST = 40, 120
WORD, POSITION, FILTERS = 50, 5, 230
RATE, DECAY, DROPOUT = 0.1, 1e-5, 0.5
SENTENCES = 4096  # the pool that batches are cut from, again and again
SITE = 1024  # sentences that a call of `fit` trains on
BAGS = 2 * (*(1,) * 11, *(2,) * 2, *(3,) * 2, 6)  # sentences of the bags in a step of ONE
ONE_SITE = 19 * sum(BAGS)
WORKERS = 2
CHECKED_STEPS = 20
TOLERANCE, LOSS_TOLERANCE = 1e-9, 1e-4  # for weights in float64, and for a step's loss in float32
BUSY = 0.7  # a load average that says so
SLICE = 1.5  # seconds that one loop has in a turn
TASKS = ("train", "one", "score")


def corpus(number: int) -> Batch:
    """Sentences with NYT10's lengths and Zipf's words."""
    random = numpy_generator(0, "benchmark", number)
    lengths = np.clip(random.gamma(6, MEAN_LENGTH / 6, SENTENCES).round(), 5, LONGEST).astype(np.int64)
    odds = 1 / (np.arange(VOCABULARY - 2) + 2.7) ** ZIPF
    words = random.choice(VOCABULARY - 2, lengths.sum(), p=odds / odds.sum()) + 2
    return Batch(
        words=torch.from_numpy(words),
        starts=torch.from_numpy(np.concatenate([[0], lengths.cumsum()])),
        head=torch.from_numpy(random.integers(lengths)),
        tail=torch.from_numpy(random.integers(lengths)),
        bags=torch.arange(SENTENCES + 1),
        labels=torch.from_numpy(random.integers(RELATIONS, size=SENTENCES)),
        rows=np.arange(SENTENCES),
    )


def cut(pool: Batch, size: int) -> list[Batch]:
    return [pool.take(torch.arange(end - size, end)) for end in range(size, SENTENCES + 1, size)]


def in_bags(batch: Batch) -> Batch:
    """The same sentences in bags, each with the label of its first sentence."""
    bounds = np.cumsum([0, *BAGS * (len(batch.head) // sum(BAGS))])
    return replace(batch, bags=torch.from_numpy(bounds), labels=batch.labels[bounds[:-1]])


def model(dropout: float) -> PCNN:
    generator = torch_generator(0, "benchmark")
    return PCNN(VOCABULARY, RELATIONS, word_dimension=WORD, dropout=dropout, generator=generator)


class PublishedLoop:
    """Steps and scores of the published loop, on batches that were padded beforehand."""

    def __init__(self, pool: Batch, dropout: float) -> None:
        self.net = Published.like(model(dropout), dropout)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
        self.batches = [(pad(batch, LONGEST), batch.labels) for batch in cut(pool, BATCH)]
        self.large = [pad(batch, LONGEST) for batch in cut(pool, PUBLISHED_SCORED_AT_ONCE)]
        self.bags = [(pad(batch, LONGEST), in_bags(batch)) for batch in cut(pool, sum(BAGS))]

    def train(self, number: int) -> int:
        """One step; says how many sentences it took in."""
        inputs, labels = self.batches[number % len(self.batches)]
        self.loss = train(self.net, self.optimiser, inputs, labels)
        return BATCH

    def one(self, number: int) -> int:
        """One step of ONE; says how many sentences it took in."""
        inputs, batch = self.bags[number % len(self.bags)]
        labels = batch.labels[bag_of_sentence(batch)]
        values = score(self.net, inputs)[torch.arange(len(labels)), labels]
        chosen = torch.from_numpy(first_of_highest(values.numpy(), batch.bags.numpy()))
        words, head, tail, piece = (each[chosen] for each in inputs)
        train(self.net, self.optimiser, (words, head, tail, piece), batch.labels)
        return len(labels)

    def score(self, number: int) -> int:
        """Relations of one batch; says how many sentences it has."""
        score(self.net, self.large[number % len(self.large)])
        return PUBLISHED_SCORED_AT_ONCE


class PlainLoop:
    """Steps and scores of the package's own classes in plain PyTorch."""

    def __init__(self, pool: Batch, dropout: float) -> None:
        self.net = model(dropout)
        self.optimiser = SGD(self.net, lr=RATE, weight_decay=DECAY)
        self.generator = torch_generator(0, "dropout")
        self.batches, self.large = cut(pool, BATCH), cut(pool, SCORED_AT_ONCE)
        self.bags = [in_bags(batch) for batch in cut(pool, sum(BAGS))]

    def train(self, number: int) -> int:
        """One step; says how many sentences it took in."""
        return self._step("none", self.batches[number % len(self.batches)])

    def one(self, number: int) -> int:
        """One step of ONE; says how many sentences it took in."""
        return self._step("one", self.bags[number % len(self.bags)])

    def _step(self, head: str, batch: Batch) -> int:
        reading = HEADS[head].read(self.net, batch, self.generator)
        loss = nn.functional.cross_entropy(reading.logits, reading.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss = loss.detach()
        return len(batch.head)

    def score(self, number: int) -> int:
        """Relations of one batch; says how many sentences it has."""
        with torch.inference_mode():
            sentence_probabilities(self.net, self.large[number % len(self.large)])
        return SCORED_AT_ONCE


class KernelLoop:
    """Sites' work with kernels."""

    def __init__(self, pool: Batch, dropout: float) -> None:
        self.net = model(dropout)
        self.sites, self.large = cut(pool, SITE), cut(pool, SCORED_AT_ONCE)
        self.bags = [in_bags(batch) for batch in cut(pool, ONE_SITE)]

    def train(self, number: int) -> int:
        """One epoch of a site; says how many sentences it took in."""
        self.fit(self.sites[number % len(self.sites)], number)
        return SITE

    def one(self, number: int) -> int:
        """One epoch of ONE at a site; says how many sentences it took in."""
        self.fit(self.bags[number % len(self.bags)], number, "one")
        return ONE_SITE

    def fit(self, batch: Batch, seed: int, head: str = "none") -> np.ndarray:
        """All of a batch, in order: each step's loss."""
        order = [np.arange(len(batch.labels))]
        settings = {"batch_size": BATCH, "lr": RATE, "weight_decay": DECAY, "seed": seed}
        return self.net.fit(batch, order, **settings, objective=Objective(head)).losses  # type: ignore[arg-type]

    def score(self, number: int) -> int:
        """Relations of one batch; says how many sentences it has."""
        batch = number % len(self.large)
        if batch == 0:  # as if the weights had changed, which they do between two of a site's rounds
            torch.autograd.graph.increment_version(self.net.filters)
        with torch.inference_mode():
            sentence_probabilities(self.net, self.large[batch])
        return SCORED_AT_ONCE


def rate(work: Callable[[int], int], seconds: float, clock: Callable[[], float]) -> float:
    """Sentences a second, over at least this long."""
    done = number = 0
    begin = clock()
    while (spent := clock() - begin) < seconds:
        done += work(number)
        number += 1
    return done / spent


class Workers:
    """Processes that work at the same time, each with so many threads."""

    def __init__(self, loop: type[PlainLoop | KernelLoop], processes: int, threads: int, cpu: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, loop, number, threads, cpu), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            pipe.recv()

    def rate(self, what: str, seconds: float) -> float:
        """Sentences a second of all workers together."""
        for pipe in self.pipes:
            pipe.send((what, seconds))
        return float(sum(pipe.recv() for pipe in self.pipes))

    def close(self) -> None:
        """Let the processes end."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()


def serve(pipe: Connection, loop: type[PlainLoop | KernelLoop], number: int, threads: int, cpu: bool) -> None:
    clock = time.thread_time if cpu else time.perf_counter
    torch.set_num_threads(1)
    if loop is PlainLoop:
        sys.modules["numba"] = None  # type: ignore[assignment]  # as if it were not installed
    loops = [loop(corpus(number * threads + thread), DROPOUT) for thread in range(threads)]
    for each in loops:  # compiles what must be compiled
        each.train(0)
        each.one(0)
        each.score(0)
    pipe.send("ready")
    with ThreadPoolExecutor(threads) as pool:
        while (order := pipe.recv()) is not None:
            what, seconds = order
            pipe.send(sum(pool.map(lambda each: rate(getattr(each, what), seconds, clock), loops)))  # noqa: B023


def trained(loop: PublishedLoop | PlainLoop, dtype: torch.dtype) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The weights, under our names, after some steps at this precision, and each step's loss."""
    loop.net.to(dtype)
    losses = np.empty(CHECKED_STEPS)
    for number in range(CHECKED_STEPS):
        loop.train(number)
        losses[number] = loop.loss
    if isinstance(loop, PlainLoop):
        return loop.net.state(), losses
    return {name: tensor.detach().numpy() for name, tensor in loop.net.as_ours().items()}, losses


def difference(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    """The largest difference of any weight."""
    return max(float(np.abs(array - right[name]).max()) for name, array in left.items())


def sgemm_peak(clock: Callable[[], float], size: int = 2048, repeats: int = 5) -> float:
    """The best GFLOP/s of a large float32 matrix product on all threads."""
    a, b = torch.ones(size, size), torch.ones(size, size)
    best = min(_timed(lambda: a @ b, clock) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    return clock() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description="PCNN against the published-style loop.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure (default: 60)")
    parser.add_argument("--cpu", action="store_true", help="count seconds of a processor, not of the clock")
    arguments = parser.parse_args()
    budget, cpu = arguments.seconds, arguments.cpu

    if os.getloadavg()[0] > BUSY and not cpu:
        print("other work is running on this machine: the figures will be off", file=sys.stderr)
    torch.set_num_threads(1 if cpu else 2)
    pool = corpus(0)
    theirs, losses = trained(PublishedLoop(pool, 0.0), torch.float64)
    plain_difference = difference(trained(PlainLoop(pool, 0.0), torch.float64)[0], theirs)
    own_difference = difference(trained(PublishedLoop(pool, 0.0), torch.float32)[0], theirs)
    print(f"largest difference of any weight after {CHECKED_STEPS} steps in float64: {plain_difference:.1e}")
    wrong = plain_difference > TOLERANCE
    fast, kernel_difference, loss_difference = compiling.has_numba(), None, None
    if fast:
        loop = KernelLoop(pool, 0.0)
        found = loop.fit(pool.take(torch.arange(CHECKED_STEPS * BATCH)), 0)
        loss_difference = float(np.abs(found - losses).max())
        kernel_difference = difference(loop.net.state(), theirs)
        print(
            f"kernels in float32 from the published loop in float64: losses {loss_difference:.1e}, weights "
            f"{kernel_difference:.1e}; the weights of the published loop in float32: {own_difference:.1e}"
        )
        wrong |= loss_difference > LOSS_TOLERANCE
    else:
        print("numba is not installed: ours is plain PyTorch")
    clock, times = (time.thread_time, WORKERS) if cpu else (time.perf_counter, 1)
    peak = times * sgemm_peak(clock)
    print(f"sgemm peak: {peak:.0f} GFLOP/s")

    contestants: dict[str, Callable[[str, float], float]] = {}
    published, workers = PublishedLoop(pool, DROPOUT), [Workers(PlainLoop, WORKERS, 1, cpu)]
    contestants["published"] = lambda what, seconds: times * rate(getattr(published, what), seconds, clock)
    contestants["plain"] = workers[0].rate
    if fast:
        workers.append(Workers(KernelLoop, 1, WORKERS, cpu))
        contestants["kernels"] = workers[1].rate
    rates = measure(contestants, turns := max(3, round(budget / (len(TASKS) * len(contestants) * SLICE))))
    for each in workers:
        each.close()

    tokens = len(pool.words) / SENTENCES
    flop = 3 * 2 * tokens * FILTERS * 3 * (WORD + 2 * POSITION)  # forward, gradients of inputs and filters
    ours = "kernels" if fast else "plain"
    rate_ = {key: statistics.median(values) for key, values in rates.items()}
    result = {
        "ours": round(rate_[ours, "train"]),
        "published_loop": round(rate_["published", "train"]),
        "ratio": median_ratio(rates, ours, "train"),
        "score_ours": round(rate_[ours, "score"]),
        "score_published_loop": round(rate_["published", "score"]),
        "score_ratio": median_ratio(rates, ours, "score"),
        "one_ours": round(rate_[ours, "one"]),
        "one_published_loop": round(rate_["published", "one"]),
        "one_ratio": median_ratio(rates, ours, "one"),
        "one_plain_ratio": median_ratio(rates, "plain", "one"),
        "plain": round(rate_["plain", "train"]),
        "plain_ratio": median_ratio(rates, "plain", "train"),
        "plain_score_ratio": median_ratio(rates, "plain", "score"),
        "gemm_fraction": round(rate_[ours, "train"] * flop / 1e9 / peak, 3),
        "sgemm_gflops": round(peak),
        "max_difference": plain_difference,
        "kernel_loss_difference": loss_difference,
        "kernel_difference": kernel_difference,
        "published_float32_difference": own_difference,
        "turns": turns,
        "clock": "processors" if cpu else "wall",
    }
    print(json.dumps(result))
    if wrong:
        print("the loops differ by more than rounding can explain", file=sys.stderr)
    return int(wrong)


def measure(
    contestants: dict[str, Callable[[str, float], float]], turns: int
) -> dict[tuple[str, str], list[float]]:
    """Each contestant's rates at each task, turn by turn."""
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns + 1):
        for what in TASKS:
            now = {name: work(what, SLICE) for name, work in contestants.items()}
            if turn:  # the first is for warming up
                print(f"{what}: " + ", ".join(f"{name} {value:,.0f}" for name, value in now.items()))
                for name, value in now.items():
                    rates.setdefault((name, what), []).append(value)
    return rates


def median_ratio(rates: dict[tuple[str, str], list[float]], name: str, what: str) -> float:
    pairs = zip(rates[name, what], rates["published", what], strict=True)
    return round(statistics.median(our / their for our, their in pairs), 2)


if __name__ == "__main__":
    sys.exit(main())
