"""What bfloat16 and packed pieces would bring to MiniLM: a prototype, which the package does not use yet.

    python benchmarks/packed/bench.py

`packed.py` runs the layers of an encoder of BERT's family over packed pieces, with forward and backward passes
written out, and products in float32 or bfloat16. Here it takes turns with Hugging Face's own layers (under autocast
for bfloat16), on one thread: a training step without the optimiser, and scoring, in milliseconds of processor time.
On a processor without bfloat16 instructions its products are emulated, and many times slower. It needs the extras
`fast` and `minilm`.

The last line of the output is JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedrel.extractors.transformer.encoder_loading import load_encoder
from packed import Dropout, PackedLayers

BATCHES = {"4 x 45": [45] * 4, "16 x 64": [64] * 16, "3 x 380": [380] * 3}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main() -> None:
    torch.set_num_threads(1)
    model = load_encoder("minilm").train()
    found: dict[str, dict[str, float]] = {}
    for name, lengths in BATCHES.items():
        for precision, dtype in PRECISIONS.items():
            times = measure(model, lengths, dtype)
            found[f"{name} {precision}"] = times
            print(name, precision, times)
    print(json.dumps(found))


def measure(model: Any, lengths: list[int], dtype: torch.dtype) -> dict[str, float]:
    """A training step and scoring by packed layers, and a training step by Hugging Face's, in milliseconds."""
    layers = model.encoder.layer
    ours = PackedLayers(list(layers), model.config.num_attention_heads, model.config.hidden_act)
    starts = [0, *np.cumsum(lengths).tolist()]
    x = torch.randn(starts[-1], model.config.hidden_size, requires_grad=True)
    where = torch.tensor([start + place for start in starts[:-1] for place in (0, 5, 9)])
    side_by_side = torch.randn(len(lengths), lengths[0], model.config.hidden_size)

    def train() -> None:
        ours.read(x, starts, where, dtype, Dropout(0.1, 0.1, 7)).sum().backward()
        model.zero_grad()

    @torch.no_grad()
    def score() -> None:
        ours.read(x, starts, where, dtype, None)

    def plain() -> None:
        states = side_by_side
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            for layer in layers:
                states = layer(states)
        states.float().sum().backward()
        model.zero_grad()

    times = {"train": train, "score": score, "hugging face train": plain}
    return {what: milliseconds(run) for what, run in times.items()}


def milliseconds(run: Callable[[], None], turns: int = 4) -> float:
    """The best of several turns, in processor time."""
    run()
    best = float("inf")
    for _ in range(turns):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return round(1000 * best, 1)


if __name__ == "__main__":
    main()
