"""What bfloat16 brings to a sentence transformer, how near training is to the machine's limit, and where time goes.

    python benchmarks/transformer.py [--seconds 120]

Two processes with one thread each, as `fedrel run` has on two cores, do the local training of FedED's preset for
GAD (MiniLM, K=50, B=4, AdamW) by the package's own code, site after site, and score sentences. float32 and bfloat16
take turns within one run, and with them large matrix products in both precisions. The sentences are GAD's, where
FEDREL_DATA names the folder that has them, else made up with the same lengths. All is done again with B=32.

`bf16_train_ratio` and `bf16_score_ratio`: sentences a second in bfloat16 over those in float32, by the same packed
code, with the preset's batches; `bf16_gemm_fraction`: the arithmetic of training with B=32 (forward and backward,
over the whole time of the loop) over that of bfloat16's matrix products of 2048^3; `bf16_gemm_fraction_preset` with
the preset's. All are null where the processor has no bfloat16. They are medians over turns of a process, in each
of which both precisions have the same site; so are the rates, which are those of one process beside the other.
`forward`, `backward` and `step` are shares of the loop's time, `outside` is what is left: gathering batches,
classifier and loss, bookkeeping. `gemm_narrow` is the rate of a product of the preset's shape (a batch of 180
pieces by MiniLM's feed-forward matrix).

`kept_memory_ratio`: sentences trained in a second by processes that keep freed memory, as all do that train packed
encoders, over those of processes that give it back. Two pairs of processes of either kind take turns.

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
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch

from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.extractors import optimisers
from fedrel.extractors.batches import PieceBatch
from fedrel.extractors.transformer.packed import packed_layers
from fedrel.extractors.transformer.sentence_transformer import SentenceTransformer
from fedrel.federation.messages import Model
from fedrel.federation.runner import Runner
from fedrel.federation.site import Site
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.seeding import numpy_generator
from fedrel.tensors.machine import BFLOAT16, FLOAT32, has_bfloat16

PRESET = Path(__file__).parent.parent / "presets" / "feded" / "gad.toml"
WORKERS = 2
BATCHES = (4, 32)  # the preset's, and one with which matrix products are most of the work
LIMITS = {"bf16_train_ratio": 1.8, "bf16_score_ratio": 1.9, "bf16_gemm_fraction": 0.5}
OUTSIDE = 0.05  # the largest share of time that is spent outside the encoder and the optimiser
SCORED = 192  # sentences in a turn
SENTENCES, MEDIAN_WORDS, SPREAD = 4797, 31, 0.33  # made-up sentences come to about GAD's lengths in pieces
TEXT = "the a of in and with risk level cell blood patient study association common rare high low age"
RATE = "train_sentences_per_second"
BUSY = 0.7  # a load average that says so


def experiment(folder: Path) -> Config:
    """The preset, on the real files if they are there, else on some in this folder."""
    config = load_config(PRESET, ["method=fedavg", "training.epochs=1"])
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
    """Seconds, sentences and arithmetic, by what they are spent on."""

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


def flop(model: SentenceTransformer, batch: PieceBatch) -> int:
    """The arithmetic of a forward and a backward pass; a backward pass takes twice a forward pass."""
    config = model.encoder.model.config
    d, f, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    asked = (batch.head_end - batch.head + batch.tail_end - batch.tail + 1).tolist()
    total = 0
    for length, some in zip(batch.starts.diff().tolist(), asked, strict=True):
        whole = 2 * length * (4 * d * d + 2 * d * f) + 4 * length * length * d
        last = 4 * length * d * d + 2 * some * (2 * d * d + 2 * d * f) + 4 * some * length * d
        total += 3 * ((layers - 1) * whole + last)
    return total


def measure(
    config: Config, precisions: tuple[str, ...], seconds: float, keep: bool
) -> list[dict[str, dict[str, float]]]:
    """One process, turn after turn: in each precision, train a site and score, between matrix products."""
    torch.set_num_threads(1)
    if not keep:
        packed_layers.keep_freed_memory = lambda: False
    ready = prepare(config)
    turns: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        runners: dict[str, Runner] = {}
        for number, (precision, size) in enumerate((p, b) for b in BATCHES for p in precisions):
            settings = [f"training.precision={precision}", f"training.batch_size={size}"]
            own = config.with_settings(settings)
            runners[f"{precision} {size}"] = new_runner(own, ready.site_data, Path(folder) / str(number))
        weights = next(iter(runners.values())).model.extractor.state()
        bags = ready.site_data.text.bags(ready.dataset.test[:SCORED])
        end = float("inf")
        while not turns or time.perf_counter() < end:
            found = {}
            for name, runner in runners.items():
                tally = Tally()
                gemm(tally, name.split()[0])
                train(runner, weights, len(turns) % config.partition.sites, tally)
                begin = time.perf_counter()
                runner.score(weights, "none", bags)
                tally.of["score"] += time.perf_counter() - begin
                tally.of["scored"] += len(bags)
                found[name] = dict(tally.of)
            turns.append(found)
            if end == float("inf"):  # the first turn was for warming up
                end = time.perf_counter() + seconds
    return turns[1:]


def train(runner: Runner, weights: Any, number: int, tally: Tally) -> None:
    """One site's local training, with clocks on what it is made of."""
    model = runner.model.extractor
    assert isinstance(model, SentenceTransformer)
    site = Site(runner.model, number, 1, {Model: Model(weights)})
    make, encode = optimisers.optimiser, model.encode

    def clocked(*args: Any) -> Any:
        made = make(*args)
        made.step = tally.timed("step", made.step)
        return made

    def counted(batch: Any, *rest: Any) -> Any:
        tally.of["flop"] += flop(model, batch)
        return encode(batch, *rest)

    with ExitStack() as stack:
        for owner, name, other in (
            (optimisers, "optimiser", clocked),
            (model, "encode", tally.timed("forward", counted)),
            (torch.Tensor, "backward", tally.timed("backward", torch.Tensor.backward)),
            (site, "begin", tally.timed("begin", site.begin)),
        ):
            stack.enter_context(mock.patch.object(owner, name, other))
        begin = time.perf_counter()
        tally.of["sentences"] += runner.model.training.epochs * runner.method.fit(site)  # type: ignore[attr-defined]
        tally.of["total"] += time.perf_counter() - begin


def gemm(tally: Tally, precision: str) -> None:
    """The most that matrix products do here, and what one of a small batch does."""
    dtype = getattr(torch, precision)
    for name, (rows, inner, columns), times in (
        ("gemm", (2048, 2048, 2048), 2),
        ("narrow", (180, 384, 1536), 60),
    ):
        left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
        out = left @ right
        begin = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=out)
        tally.of[f"{name}_seconds"] += time.perf_counter() - begin
        tally.of[f"{name}_flop"] += times * 2 * rows * inner * columns


def summary(one: dict[str, float]) -> dict[str, float]:
    """One turn of one process, in one precision and batch size."""
    loop = one["total"] - one["begin"]
    shares = {what: one[what] / loop for what in ("forward", "backward", "step")}
    return {
        "train_sentences_per_second": one["sentences"] / loop,
        "score_sentences_per_second": one["scored"] / one["score"],
        **shares,
        "outside": 1 - sum(shares.values()),
        "gflops": one["flop"] / loop / 1e9,
        "gemm": one["gemm_flop"] / one["gemm_seconds"] / 1e9,
        "gemm_narrow": one["narrow_flop"] / one["narrow_seconds"] / 1e9,
    }


def ratios(turns: list[dict[str, dict[str, float]]]) -> dict[str, float | None]:
    """bfloat16 against float32, and against its own matrix products: the medians over turns."""
    preset, large = BATCHES
    if f"{BFLOAT16} {preset}" not in turns[0]:
        return dict.fromkeys([*LIMITS, "bf16_train_ratio_large", "bf16_gemm_fraction_preset"])

    def ratio(what: str, size: int) -> float:
        return median(turn[f"{BFLOAT16} {size}"][what] / turn[f"{FLOAT32} {size}"][what] for turn in turns)

    def fraction(size: int) -> float:
        return median(
            turn[f"{BFLOAT16} {size}"]["gflops"] / turn[f"{BFLOAT16} {size}"]["gemm"] for turn in turns
        )

    return {
        "bf16_train_ratio": ratio("train_sentences_per_second", preset),
        "bf16_score_ratio": ratio("score_sentences_per_second", preset),
        "bf16_gemm_fraction": fraction(large),
        "bf16_train_ratio_large": ratio("train_sentences_per_second", large),
        "bf16_score_ratio_large": ratio("score_sentences_per_second", large),
        "bf16_gemm_fraction_preset": fraction(preset),
        "gemm_ratio": ratio("gemm", large),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="about how long to measure")
    seconds = parser.parse_args().seconds
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"the machine is busy (load {load:.1f}): rates will be low, ratios less so", file=sys.stderr)
    precisions = (FLOAT32, BFLOAT16) if has_bfloat16() else (FLOAT32,)
    context = multiprocessing.get_context("spawn")
    by_memory: dict[bool, list[dict[str, dict[str, float]]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        config = experiment(Path(folder))
        prepare(config)  # tokenised once, for all
        for keep in (False, True, False, True):
            with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
                each = [[value] * WORKERS for value in (config, precisions, seconds / 4, keep)]
                for part in pool.map(measure, *each):
                    by_memory[keep] += [{name: summary(one) for name, one in turn.items()} for turn in part]
    turns = by_memory[True]
    found = {
        name: {key: median(turn[name][key] for turn in turns) for key in own}
        for name, own in turns[0].items()
    }
    result: dict[str, Any] = {
        "corpus": "gad" if os.environ.get("FEDREL_DATA") else "made-up",
        "threads": WORKERS,
        "turns": len(turns),
        **ratios(turns),
        "kept_memory_ratio": {
            name: found[name][RATE] / median(turn[name][RATE] for turn in by_memory[False]) for name in found
        },
        **found,
    }
    missed = [
        f"{what} is {result[what]:.2f}, expected at least {least}"
        for what, least in LIMITS.items()
        if result[what] is not None and result[what] < least
    ]
    missed += [
        f"{name}: {one['outside']:.1%} of the time is outside encoder and optimiser, expected {OUTSIDE:.0%}"
        for name, one in found.items()
        if one["outside"] > OUTSIDE
    ]
    for problem in missed:
        print(problem, file=sys.stderr)
    print(json.dumps(rounded(result)))
    return bool(missed)


def rounded(value: Any) -> Any:
    """Numbers to four places."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
