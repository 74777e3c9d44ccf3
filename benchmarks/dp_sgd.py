"""How long does DP-SGD take, beside plain training on the same sentences?

    python benchmarks/dp_sgd.py [--turns 10] [--transformer] [--out FILE]

PCNN's kernels at NYT10's shape (`benchmarks/pcnn.py`): a site of 4,096 sentences, three epochs of batches of 32,
against as many steps of DP-SGD with Poisson sampling at the rate 32 / 4,096. Both train in turns, on one thread and
from the same weights, with the words' vectors as they are or trained; trained ones get noise in all 114,042 rows.
`one` reads bags of 1.7 sentences on average. `system` draws from the operating system, as real sites do.

With `--transformer` also MiniLM, all of it and with LoRA of rank 8, on 32 sentences: a backward pass for each
sentence against one for all.

A ratio is the median over turns of the seconds of a processor with noise to those without. The last line of the
output is JSON. The command fails if `fixed_words` is above its limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedrel.extractors.batches import Batch, PieceBatch
from fedrel.extractors.dp_sgd import ClippedSum
from fedrel.extractors.objective import DPSteps, Objective
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer.sentence_transformer import sentence_transformer
from fedrel.federation.noised_training import Randomness, SeededRandomness, SystemRandomness, poisson_batches
from fedrel.seeding import numpy_generator, torch_generator
from pcnn import BATCH, DECAY, DROPOUT, RATE, RELATIONS, SENTENCES, VOCABULARY, WORD, corpus, in_bags

LIMIT = 2.5
EPOCHS, CLIP, NOISE = 3, 0.5, 1.0
PIECES, LENGTH = 32, 40  # sentences for a transformer, and pieces of each


def pcnn(*, train_words: bool) -> PCNN:
    generator = torch_generator(0, "benchmark")
    made = PCNN(
        VOCABULARY,
        RELATIONS,
        word_dimension=WORD,
        dropout=DROPOUT,
        generator=generator,
        train_words=train_words,
    )
    made.begin(made.state())
    return made


def plain(model: PCNN, batch: Batch, head: str, turn: int) -> None:
    random = numpy_generator(turn, "shuffle")
    orders = [random.permutation(len(batch.labels)) for _ in range(EPOCHS)]
    settings = {"batch_size": BATCH, "lr": RATE, "weight_decay": DECAY}
    model.fit(batch, orders, **settings, seed=turn, objective=Objective(head))  # type: ignore[arg-type]


def noised(model: PCNN, batch: Batch, head: str, turn: int, randomness: Randomness | None = None) -> None:
    found = randomness or SeededRandomness(numpy_generator(turn, "noise"))
    rate, count = BATCH / len(batch.labels), EPOCHS * round(len(batch.labels) / BATCH)
    batches = list(poisson_batches(len(batch.labels), rate, count, found))
    steps = DPSteps(batches, BATCH, CLIP, NOISE, found.normal)
    model.fit_with_noise(batch, steps, lr=RATE, weight_decay=DECAY, seed=turn, objective=Objective(head))


def seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def kernels(turns: int) -> dict[str, float]:
    """The ratios of PCNN's kernels."""
    site = corpus(0)
    cases: dict[str, tuple[bool, str, Batch, Randomness | None]] = {
        "fixed_words": (False, "none", site, None),
        "trained_words": (True, "none", site, None),
        "one": (False, "one", in_bags(site.take(torch.arange(SENTENCES // 54 * 54))), None),
        "system": (False, "none", site, SystemRandomness()),
    }
    models = {trained: pcnn(train_words=trained) for trained in (False, True)}
    starts = {trained: model.state() for trained, model in models.items()}
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(turns + 1):
        for name, (trained, head, batch, randomness) in cases.items():
            model, taken = models[trained], []
            for train in (plain, noised):
                model.begin(starts[trained])
                given = (randomness,) if train is noised else ()
                taken.append(seconds(lambda: train(model, batch, head, turn, *given)))  # noqa: B023
            if turn:  # the first is for compiling and warming up
                ratios[name].append(taken[1] / taken[0])
            print(
                f"{turn:3} {name:15} {taken[0]:8.3f} s {taken[1]:8.3f} s {taken[1] / taken[0]:8.2f}",
                flush=True,
            )
    return {name: round(statistics.median(found), 2) for name, found in ratios.items()}


def transformers(turns: int) -> dict[str, float]:
    """The ratios of MiniLM, a step of 32 sentences each."""
    random = numpy_generator(0, "pieces")
    head = torch.from_numpy(random.integers(1, 15, PIECES))
    tail = torch.from_numpy(random.integers(20, 35, PIECES))
    batch = PieceBatch(
        words=torch.from_numpy(random.integers(1000, 20000, PIECES * LENGTH)),
        starts=torch.arange(0, PIECES * LENGTH + 1, LENGTH),
        head=head,
        tail=tail,
        bags=torch.arange(PIECES + 1),
        labels=torch.from_numpy(random.integers(5, size=PIECES)),
        rows=np.arange(PIECES),
        head_end=head + 2,
        tail_end=tail + 2,
    )
    found = {}
    for name, options in (("transformer", {}), ("lora", {"lora_rank": 8})):
        section = TransformerSection(encoder="minilm", **options)  # type: ignore[arg-type]
        model = sentence_transformer(section, 5, torch_generator(0, "model"))
        model.begin(model.state())
        takes, dropout = SGD(model, 1e-3), torch_generator(0, "dropout")
        normal = SeededRandomness(numpy_generator(0, "noise")).normal
        total = ClippedSum(model, DPSteps([], PIECES, CLIP, NOISE, normal))

        def whole() -> None:
            reading = model.read("none", batch, dropout)  # noqa: B023
            cross_entropy(reading.logits, reading.labels).backward()
            takes.step()  # noqa: B023

        def each() -> None:
            for number in range(PIECES):
                reading = model.read("none", batch.take(torch.tensor([number])), dropout)  # noqa: B023
                cross_entropy(reading.logits, reading.labels).backward()
                total.add()  # noqa: B023
            total.finish()  # noqa: B023
            takes.step()  # noqa: B023

        ratios = []
        for turn in range(turns + 1):
            taken = seconds(whole), seconds(each)
            print(
                f"{turn:3} {name:15} {taken[0]:8.3f} s {taken[1]:8.3f} s {taken[1] / taken[0]:8.2f}",
                flush=True,
            )
            ratios += [taken[1] / taken[0]] if turn else []
        found[name] = round(statistics.median(ratios), 2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="The time of DP-SGD beside plain training.")
    parser.add_argument("--turns", type=int, default=10, help="measured turns (default: 10)")
    parser.add_argument("--transformer", action="store_true", help="also MiniLM, whole and with LoRA")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = kernels(arguments.turns) | (transformers(3) if arguments.transformer else {})
    print(f"\nDP-SGD to plain training, words fixed: {result['fixed_words']:.2f}  limit {LIMIT}")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return int(result["fixed_words"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
