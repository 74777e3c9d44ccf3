"""All kernels that PCNN's runs need, part by part, each called once on a few made-up numbers: that compiles it.

    python -m fedrel.extractors.pcnn.all_kernels [PART ...]

Without names, all parts. One process compiles its parts one after the other: what they share is compiled once. What
is compiled depends on the types of arrays, not on their sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import sentence_probabilities
from fedrel.extractors.objective import DPSteps
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.tensors.compiling import compile_parts, has_numba, read_only
from fedrel.tensors.weights import WeightedMean

FOLDER = Path(__file__).parent / "kernels"


def training() -> None:
    """All steps of a site."""
    pcnn, batch = _model(), _batch()
    pcnn.fit(batch, [np.arange(2)], batch_size=2, lr=0.1, weight_decay=0.0, seed=0)


def noised() -> None:
    """All steps of a site with DP-SGD."""
    steps = DPSteps([np.arange(2)], 2.0, 1.0, 1.0, lambda count: np.zeros(count, np.float32))
    _model().fit_with_noise(_batch(), steps, lr=0.1, weight_decay=0.0, seed=0)


def scoring() -> None:
    """Sentences to probabilities; what a site changed; means; sentences laid end to end."""
    from fedrel.tensors.array_kernels import lay_end_to_end

    pcnn, start = _model(), _model().state()
    with torch.inference_mode():
        sentence_probabilities(pcnn, _batch())
        pcnn.probabilities("att", _batch())
    mean = WeightedMean(start)
    mean.add(pcnn.update(), 1.0)
    mean.result()
    pcnn.begin(start)
    pcnn.begin(start)
    tokens, numbers = read_only(np.zeros(2, np.int32)), read_only(np.arange(2))
    lay_end_to_end(tokens, numbers, numbers, read_only(numbers[:1]))


def gradients() -> None:
    """Sentences to vectors and back, for training through the graph."""
    _model().encode(_batch()).sum().backward()  # type: ignore[no-untyped-call]


PARTS = {"training": training, "scoring": scoring, "gradients": gradients, "noised": noised}


def _model() -> PCNN:
    return PCNN(4, 2, generator=torch.Generator(), word_dimension=2, position_dimension=2, filters=2)


def _batch() -> Batch:
    return Batch(
        words=torch.tensor([1, 2, 3, 1]),
        starts=torch.tensor([0, 2, 4]),
        head=torch.tensor([0, 0]),
        tail=torch.tensor([1, 1]),
        bags=torch.tensor([0, 1, 2]),
        labels=torch.tensor([0, 1]),
        rows=np.arange(2),
    )


if __name__ == "__main__" and has_numba():
    compile_parts(FOLDER, PARTS, sys.argv[1:] or list(PARTS))
