"""Where the time of a sentence transformer's training goes, and how near it is to the machine's limit.

    python benchmarks/transformer.py [--seconds 60]

Two processes with one thread each, as `fedrel run` has on two cores, do the local training of FedED's preset for
GAD (MiniLM, K=50, B=4, AdamW) by the package's own code, site after site, and take turns with a large sgemm. The
sentences are GAD's, where FEDREL_DATA names the folder that has them, else made up with the same lengths.

`outside` is the share of the loop's time that is not spent in the encoder's forward pass, the backward pass or the
optimiser's step: gathering batches, classifier and loss, bookkeeping. `padding` is the share of pieces that the
encoder reads for nothing. `gflops` counts the arithmetic that is done, without padding; `plain_gflops` that of a
forward pass that computes every piece's last state, of which ours leaves out what no pooling reads. Both count
forward and backward, over the whole time of the loop; `gemm` is the sgemm's rate in the same run.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.extractors.optim import optimiser as optimisers
from fedrel.extractors.transformer.encoder import LayeredEncoder
from fedrel.extractors.transformer.padding import Group
from fedrel.extractors.transformer.sentence_transformer import SentenceTransformer
from fedrel.federation.messages import Model
from fedrel.federation.site import Site
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.seeding import numpy_generator

PRESET = Path(__file__).parent.parent / "presets" / "feded" / "gad.toml"
WORKERS = 2
LIMITS = {"outside": 0.05, "padding": 0.05}
SENTENCES, MEDIAN_WORDS, SPREAD = 4797, 31, 0.33  # made-up sentences come to about GAD's lengths in pieces
TEXT = "the a of in and with risk level cell blood patient study association common rare high low age"
BUSY = 0.7  # a load average that says so


def experiment(folder: Path) -> Config:
    """The preset, on the real files if they are there, else on some in this folder."""
    config = load_config(PRESET, ["method=fedavg"])
    return config if os.environ.get("FEDREL_DATA") else config.with_settings(made_up(folder))


def made_up(folder: Path) -> list[str]:
    """Write sentences in GAD's form; the settings that name them."""
    random = numpy_generator(1, "made-up")
    for name, count in (("train", SENTENCES), ("test", SENTENCES // 9)):
        lines = []
        for size in np.exp(random.normal(np.log(MEDIAN_WORDS), SPREAD, count)).astype(int).clip(8, 110):
            words = random.choice(TEXT.split(), size).tolist()
            words[int(random.integers(size // 2))] = "@GENE$"
            words[int(random.integers(size // 2, size))] = "@DISEASE$"
            lines.append(f"{' '.join(words)}\t{random.integers(2)}\n")
        (folder / f"{name}.tsv").write_text("".join(lines))
    return [f'data.root="{folder}"', 'data.train=["train.tsv"]', 'data.test=["test.tsv"]']


class Tally:
    """Seconds, pieces and arithmetic, by what they are spent on."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def timed(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function with a clock on it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.of[what] += time.perf_counter() - begin

        return call

    def group(self, model: SentenceTransformer, group: Group, states: torch.Tensor) -> None:
        """Count what reading a group takes; a backward pass takes twice a forward pass."""
        config = model.encoder.model.config
        d, f, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
        lengths = [states.shape[1]] * len(states) if group.real is None else group.real.sum(1).tolist()
        asked = (group.head_real.sum(1) + group.tail_real.sum(1) + 1).tolist()
        for length, some in zip(lengths, asked, strict=True):
            whole = 2 * length * (4 * d * d + 2 * d * f) + 4 * length * length * d
            last = 4 * length * d * d + 2 * some * (2 * d * d + 2 * d * f) + 4 * some * length * d
            self.of["flop"] += 3 * ((layers - 1) * whole + last)
            self.of["plain_flop"] += 3 * layers * whole
        self.of["real"] += sum(lengths)
        self.of["padded"] += states.shape[0] * states.shape[1]


def measure(config: Config, seconds: float) -> dict[str, float]:
    """One process: train site after site, between slices of sgemm."""
    torch.set_num_threads(1)
    ready = prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        runner = new_runner(config, ready.site_data, Path(folder))
        model = runner.model.extractor
        assert isinstance(model, SentenceTransformer) and isinstance(model.encoder, LayeredEncoder)
        weights = model.state()
        train(runner, weights, 0, Tally())  # for warming up
        tally, end, number = Tally(), time.perf_counter() + seconds, 1
        while time.perf_counter() < end:
            gemm(tally)
            train(runner, weights, number % config.partition.sites, tally)
            number += 1
    return dict(tally.of)


def train(runner: Any, weights: Any, number: int, tally: Tally) -> None:
    """One site's local training, with clocks on what it is made of."""
    model = runner.model.extractor
    site = Site(runner.model, number, 1, {Model: Model(weights)})
    make, pool = optimisers.optimiser, model._pool

    def clocked(*args: Any) -> Any:
        made = make(*args)
        made.step = tally.timed("step", made.step)
        return made

    def counted(states: torch.Tensor, group: Group) -> torch.Tensor:
        tally.group(model, group, states)
        return pool(states, group)

    with ExitStack() as stack:
        for owner, name, other in (
            (optimisers, "optimiser", clocked),
            (model, "encode", tally.timed("forward", model.encode)),
            (model, "_pool", counted),
            (torch.Tensor, "backward", tally.timed("backward", torch.Tensor.backward)),
            (site, "begin", tally.timed("begin", site.begin)),
        ):
            stack.enter_context(mock.patch.object(owner, name, other))
        begin = time.perf_counter()
        tally.of["sentences"] += runner.model.training.epochs * runner.method.fit(site)
        tally.of["total"] += time.perf_counter() - begin


def gemm(tally: Tally, size: int = 2048) -> None:
    """The most that matrix products do here."""
    left, right = torch.ones(size, size), torch.ones(size, size)
    out = left @ right
    begin = time.perf_counter()
    for _ in range(3):
        torch.mm(left, right, out=out)
    tally.of["gemm_seconds"] += time.perf_counter() - begin
    tally.of["gemm_flop"] += 3 * 2 * size**3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long to measure")
    seconds = parser.parse_args().seconds
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"the machine is busy (load {load:.1f}): rates will be low, shares less so", file=sys.stderr)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        config = experiment(Path(folder))
        prepare(config)  # tokenised once, for both
        found = list(pool.map(measure, [config] * WORKERS, [seconds] * WORKERS))

    loops = [one["total"] - one["begin"] for one in found]
    every = Counter[str]()
    for one in found:
        every.update(one)
    loop = sum(loops)

    def rate(what: str) -> float:
        return sum(one[what] / alone for one, alone in zip(found, loops, strict=True))

    limit = sum(one["gemm_flop"] / one["gemm_seconds"] for one in found)
    spent = {what: every[what] / loop for what in ("forward", "backward", "step")}
    result = {
        "corpus": "gad" if os.environ.get("FEDREL_DATA") else "made-up",
        "sentences_per_second": rate("sentences"),
        **spent,
        "outside": 1 - sum(spent.values()),
        "padding": 1 - every["real"] / every["padded"],
        "gflops": rate("flop") / 1e9,
        "plain_gflops": rate("plain_flop") / 1e9,
        "gemm": limit / 1e9,
        "gemm_fraction": rate("flop") / limit,
        "plain_gemm_fraction": rate("plain_flop") / limit,
        "threads": WORKERS,
    }
    missed = [what for what, most in LIMITS.items() if result[what] > most]
    for what in missed:
        print(f"{what} is {result[what]:.3f}, expected at most {LIMITS[what]}", file=sys.stderr)
    print(json.dumps({key: round(one, 4) if isinstance(one, float) else one for key, one in result.items()}))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
