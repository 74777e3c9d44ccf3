"""PCNN, sentence by sentence and number by number: what the packed computation must equal."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrel.extractors.base import Extractor
from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS
from fedrel.extractors.pcnn.pcnn import PCNN


def make_batch(sentences: list[tuple[list[int], int, int]], bags: list[int], labels: list[int]) -> Batch:
    """Sentences as (words, head, tail), grouped into bags of the given sizes."""
    assert sum(bags) == len(sentences) and len(bags) == len(labels)
    lengths = [len(words) for words, _, _ in sentences]
    return Batch(
        words=torch.tensor([word for words, _, _ in sentences for word in words]),
        starts=torch.tensor([0, *np.cumsum(lengths)]),
        head=torch.tensor([head for _, head, _ in sentences]),
        tail=torch.tensor([tail for _, _, tail in sentences]),
        bags=torch.tensor([0, *np.cumsum(bags)]),
        labels=torch.tensor(labels),
        rows=np.arange(len(sentences)) + 1000,
    )


def loss_of(
    head: str, model: Extractor, batch: Batch, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of what a head reads, and how much each sentence is trained on."""
    reading = HEADS[head].read(model, batch, generator)
    return cross_entropy(reading.logits, reading.labels), reading.weights


def encode(model: PCNN, batch: Batch, words: Tensor | None = None) -> Tensor:
    """`PCNN.encode` with nn.Conv1d's function on one sentence at a time; `words`: the table to read."""
    table = model.words.dense() if words is None else words
    filters, reach = model.filters, model.max_length
    kernel = filters.view(len(filters), model.window, -1).transpose(1, 2)
    vectors = []
    for s in range(len(batch.head)):
        begin, end = int(batch.starts[s]), int(batch.starts[s + 1])
        head, tail = int(batch.head[s]), int(batch.tail[s])
        columns = [
            torch.cat(
                [
                    table[int(batch.words[begin + i])],
                    model.head_positions[min(max(i - head, -reach), reach) + reach],
                    model.tail_positions[min(max(i - tail, -reach), reach) + reach],
                ]
            )
            for i in range(end - begin)
        ]
        output = torch.nn.functional.conv1d(
            torch.stack(columns, 1)[None], kernel, model.filters_bias, padding=model.window // 2
        )[0]
        first, second = min(head, tail) + 1, max(head, tail) + 1
        pieces = [output[:, :first], output[:, first:second], output[:, second:]]
        vectors.append(
            torch.cat(
                [
                    piece.max(1).values.relu() if piece.shape[1] else output.new_zeros(len(output))
                    for piece in pieces
                ]
            )
        )
    return torch.stack(vectors)
