"""How fast PCNN trains and scores, against the loop that published implementations run, in one run.

    python benchmarks/pcnn.py [--seconds 60]

The published loop pads every sentence to 120 tokens and runs nn.Embedding with dense gradients, nn.Conv1d,
masked maxima and torch.optim.SGD(fused=True) in one process with two threads. Ours is what `fedrel run` runs:
`PCNN`, `HEADS["none"]` and `SGD`, in two processes with one thread each. Both see the same batches at NYT10's
shape, prepared beforehand. The two take turns in short slices, and a ratio is the median over turns.

Before that, both train on the same batches without dropout, and the run fails if their weights differ. That
is decided in float64: in float32 a near-tie between two tokens for a maximum can go either way, in the
published loop as in ours, and moves one filter by about 1e-4. The float32 difference is printed too, beside
the published loop's own distance from its float64 self.

The last line of the output is JSON. `gemm_fraction` is the arithmetic of a convolution without padding, forward
and backward, that our training rate stands for, over the peak of a large sgemm. Run it on an idle machine:
other work slows the two-threaded loop more than ours.
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
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor, nn

from fedrel.extractors.bags import HEADS, sentence_probabilities
from fedrel.extractors.batch import Batch
from fedrel.extractors.pcnn import PCNN
from fedrel.extractors.sgd import SGD
from fedrel.seeding import numpy_generator, torch_generator

VOCABULARY, RELATIONS, BATCH = 114_042, 53, 32
SCORED_AT_ONCE, PUBLISHED_SCORED_AT_ONCE = 512, 32  # for each loop the size it is fastest with
ZIPF = 1.18  # 1,280 tokens then have about 580 distinct words
MEAN_LENGTH, LONGEST = 40, 120
WORD, POSITION, FILTERS = 50, 5, 230
RATE, DECAY, DROPOUT = 0.1, 1e-5, 0.5
SENTENCES = 4096  # the pool that batches are cut from, again and again
WORKERS = 2
TOLERANCE, CHECKED_STEPS = 1e-9, 20
BUSY = 0.7  # a load average that says so
SLICE = 1.5  # seconds that one loop has in a turn


class Published(nn.Module):
    """PCNN as it is usually written."""

    def __init__(self, ours: PCNN, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WORD, padding_idx=0)
        self.head_positions = nn.Embedding(2 * LONGEST + 2, POSITION, padding_idx=0)
        self.tail_positions = nn.Embedding(2 * LONGEST + 2, POSITION, padding_idx=0)
        self.convolution = nn.Conv1d(WORD + 2 * POSITION, FILTERS, 3, padding=1)
        self.classifier = nn.Linear(3 * FILTERS, RELATIONS)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.words.weight.copy_(ours.words.dense())
            self.head_positions.weight[0] = self.tail_positions.weight[0] = 0
            self.head_positions.weight[1:] = ours.head_positions
            self.tail_positions.weight[1:] = ours.tail_positions
            self.convolution.weight.copy_(ours.filters.view(FILTERS, 3, -1).transpose(1, 2))
            self.convolution.bias.copy_(ours.filters_bias)  # type: ignore[union-attr]
            self.classifier.load_state_dict(ours.classifier.state_dict())

    def forward(self, words: Tensor, head: Tensor, tail: Tensor, piece: Tensor) -> Tensor:
        """Logits, [S, R]. `piece`: 1, 2, 3, and 0 after the sentence's end."""
        inputs = torch.cat([self.words(words), self.head_positions(head), self.tail_positions(tail)], 2)
        output = self.convolution(inputs.transpose(1, 2))
        maxima = [output.masked_fill((piece != p)[:, None], -100).amax(2) for p in (1, 2, 3)]
        vectors = torch.cat(maxima, 1).relu()
        logits: Tensor = self.classifier(self.dropout(vectors))
        return logits

    def as_ours(self) -> dict[str, Tensor]:
        """The weights under our names."""
        kernel = self.convolution.weight.transpose(1, 2).reshape(FILTERS, -1)
        return {
            "words.weight": self.words.weight,
            "head_positions": self.head_positions.weight[1:],
            "tail_positions": self.tail_positions.weight[1:],
            "filters": kernel,
            "filters_bias": self.convolution.bias,  # type: ignore[dict-item]
            "classifier.weight": self.classifier.weight,
            "classifier.bias": self.classifier.bias,
        }


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
    return [pool.take(torch.arange(first, first + size)) for first in range(0, SENTENCES, size)]


def pad(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Words, distances and pieces as `Published` reads them, [S, 120] each, 0 after the sentence's end."""
    lengths = batch.starts.diff()[:, None]
    place = torch.arange(LONGEST).expand(len(lengths), -1)
    inside = place < lengths
    words = torch.zeros_like(place).masked_scatter(inside, batch.words)
    head, tail = place - batch.head[:, None], place - batch.tail[:, None]
    piece = 1 + (head > 0).long() + (tail > 0).long()
    return words, (head + LONGEST + 1) * inside, (tail + LONGEST + 1) * inside, piece * inside


def model(dropout: float) -> PCNN:
    generator = torch_generator(0, "benchmark")
    return PCNN(VOCABULARY, RELATIONS, word_dimension=WORD, dropout=dropout, generator=generator)


class PublishedLoop:
    """Steps and scores of the published loop, on batches that were padded beforehand."""

    def __init__(self, pool: Batch, dropout: float) -> None:
        self.net = Published(model(dropout), dropout)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
        self.batches = [(pad(batch), batch.labels) for batch in cut(pool, BATCH)]
        self.large = [pad(batch) for batch in cut(pool, PUBLISHED_SCORED_AT_ONCE)]

    def train(self, number: int) -> int:
        """One step; says how many sentences it took in."""
        inputs, labels = self.batches[number % len(self.batches)]
        self.net.train()
        loss = nn.functional.cross_entropy(self.net(*inputs), labels)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return BATCH

    def score(self, number: int) -> int:
        """Relations of one batch; says how many sentences it has."""
        self.net.eval()
        with torch.inference_mode():
            self.net(*self.large[number % len(self.large)]).softmax(1)
        return PUBLISHED_SCORED_AT_ONCE


class OurLoop:
    """Steps and scores of the package's own classes."""

    def __init__(self, pool: Batch, dropout: float) -> None:
        self.net = model(dropout)
        self.optimiser = SGD(self.net, lr=RATE, weight_decay=DECAY)
        self.generator = torch_generator(0, "dropout")
        self.batches, self.large = cut(pool, BATCH), cut(pool, SCORED_AT_ONCE)

    def train(self, number: int) -> int:
        """One step; says how many sentences it took in."""
        loss, _ = HEADS["none"].loss(self.net, self.batches[number % len(self.batches)], self.generator)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return BATCH

    def score(self, number: int) -> int:
        """Relations of one batch; says how many sentences it has."""
        with torch.inference_mode():
            sentence_probabilities(self.net, self.large[number % len(self.large)])
        return SCORED_AT_ONCE


def rate(work: Callable[[int], int], seconds: float) -> float:
    """Sentences a second, over at least this long."""
    done = number = 0
    begin = time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        done += work(number)
        number += 1
    return done / spent


class Workers:
    """Our loop in processes of one thread each, which work at the same time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for number in range(WORKERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, number), daemon=True)
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


def serve(pipe: Connection, number: int) -> None:
    torch.set_num_threads(1)
    loop = OurLoop(corpus(number), DROPOUT)
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        what, seconds = order
        pipe.send(rate(getattr(loop, what), seconds))


def trained(loop: PublishedLoop | OurLoop, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """The weights, under our names, after some steps at this precision."""
    loop.net.to(dtype)
    for number in range(CHECKED_STEPS):
        loop.train(number)
    if isinstance(loop, OurLoop):
        return loop.net.state()
    return {name: tensor.detach().numpy() for name, tensor in loop.net.as_ours().items()}


def difference(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    """The largest difference of any weight."""
    return max(float(np.abs(array - right[name]).max()) for name, array in left.items())


def sgemm_peak(size: int = 2048, repeats: int = 5) -> float:
    """The best GFLOP/s of a large float32 matrix product on all threads."""
    a, b = torch.ones(size, size), torch.ones(size, size)
    best = min(_timed(lambda: a @ b) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description="PCNN against the published-style loop.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure (default: 60)")
    budget = parser.parse_args().seconds

    if os.getloadavg()[0] > BUSY:
        print("other work is running on this machine: the figures will be off", file=sys.stderr)
    torch.set_num_threads(2)
    pool = corpus(0)
    double, theirs_double = (trained(loop(pool, 0.0), torch.float64) for loop in (OurLoop, PublishedLoop))
    single, theirs_single = (trained(loop(pool, 0.0), torch.float32) for loop in (OurLoop, PublishedLoop))
    worst = difference(double, theirs_double)
    print(
        f"largest difference of any weight after {CHECKED_STEPS} steps: float64 {worst:.1e}, "
        f"float32 {difference(single, theirs_single):.1e}; "
        f"published loop in float32 and float64 {difference(theirs_single, theirs_double):.1e}"
    )
    peak = sgemm_peak()
    print(f"sgemm peak, two threads: {peak:.0f} GFLOP/s")

    published, workers = PublishedLoop(pool, DROPOUT), Workers()
    turns = max(3, round(budget / (4 * SLICE)))
    rates: dict[str, list[float]] = {"train": [], "score": [], "published train": [], "published score": []}
    for turn in range(turns + 1):
        for what in ("train", "score"):
            theirs = rate(getattr(published, what), SLICE)
            ours = workers.rate(what, SLICE)
            if turn:  # the first is for warming up
                rates[f"published {what}"].append(theirs)
                rates[what].append(ours)
                print(
                    f"{what}: {ours:,.0f} sentences a second, published {theirs:,.0f}, {ours / theirs:.1f} times"
                )
    workers.close()

    tokens = len(pool.words) / SENTENCES
    flop = (
        3 * 2 * tokens * FILTERS * 3 * (WORD + 2 * POSITION)
    )  # forward, and the gradients of inputs and filters
    ours = statistics.median(rates["train"])
    result = {
        "ours": round(ours),
        "published_loop": round(statistics.median(rates["published train"])),
        "ratio": round(median_ratio(rates["train"], rates["published train"]), 2),
        "score_ours": round(statistics.median(rates["score"])),
        "score_published_loop": round(statistics.median(rates["published score"])),
        "score_ratio": round(median_ratio(rates["score"], rates["published score"]), 2),
        "gemm_fraction": round(ours * flop / 1e9 / peak, 3),
        "sgemm_gflops": round(peak),
        "max_difference": worst,
        "max_difference_float32": difference(single, theirs_single),
        "turns": turns,
    }
    print(json.dumps(result))
    if worst > TOLERANCE:
        print(f"the two loops' weights differ by {worst:.1e}, more than {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    return 0


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    sys.exit(main())
