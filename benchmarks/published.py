"""PCNN as published implementations have it: what the benchmarks compare with.

Every sentence is padded to `max_length` tokens, words have dense gradients, and nn.Conv1d, masked maxima and
torch.optim.SGD do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:  # the peers' environment has no fedrel
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.pcnn.pcnn import PCNN

Padded = tuple[Tensor, Tensor, Tensor, Tensor]


class Published(nn.Module):
    """PCNN as it is usually written, with the sizes and the weights, under our names, of one of ours."""

    def __init__(self, ours: Mapping[str, Tensor], dropout: float) -> None:
        super().__init__()
        vocabulary, word = ours["words.weight"].shape
        distances, position = ours["head_positions"].shape
        relations, units = ours["classifier.weight"].shape
        width, filters = word + 2 * position, units // 3
        window = ours["filters"].shape[1] // width
        self.words = nn.Embedding(vocabulary, word, padding_idx=0)
        self.head_positions = nn.Embedding(distances + 1, position, padding_idx=0)
        self.tail_positions = nn.Embedding(distances + 1, position, padding_idx=0)
        self.convolution = nn.Conv1d(width, filters, window, padding=window // 2)
        self.classifier = nn.Linear(units, relations)
        self.dropout = nn.Dropout(dropout)
        self.load(ours)

    @classmethod
    def like(cls, ours: PCNN, dropout: float) -> Published:
        """With the sizes and weights of a model of ours."""
        return cls({name: torch.from_numpy(array) for name, array in ours.state().items()}, dropout)

    @torch.no_grad()
    def load(self, ours: Mapping[str, Tensor]) -> None:
        """Take over weights under our names."""
        filters, _, window = self.convolution.weight.shape
        self.words.weight.copy_(ours["words.weight"])
        for positions, name in (
            (self.head_positions, "head_positions"),
            (self.tail_positions, "tail_positions"),
        ):
            positions.weight[0] = 0
            positions.weight[1:] = ours[name]
        self.convolution.weight.copy_(ours["filters"].view(filters, window, -1).transpose(1, 2))
        self.convolution.bias.copy_(ours["filters_bias"])  # type: ignore[union-attr]
        self.classifier.weight.copy_(ours["classifier.weight"])
        self.classifier.bias.copy_(ours["classifier.bias"])

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
        return {
            "words.weight": self.words.weight,
            "head_positions": self.head_positions.weight[1:],
            "tail_positions": self.tail_positions.weight[1:],
            "filters": self.convolution.weight.transpose(1, 2).flatten(1),
            "filters_bias": self.convolution.bias,  # type: ignore[dict-item]
            "classifier.weight": self.classifier.weight,
            "classifier.bias": self.classifier.bias,
        }


def pad(batch: Batch, longest: int) -> Padded:
    """Words, distances and pieces as `Published` reads them, [S, longest] each, 0 after the sentence's end."""
    lengths = batch.starts.diff()[:, None]
    place = torch.arange(longest).expand(len(lengths), -1)
    inside = place < lengths
    words = torch.zeros_like(place).masked_scatter(inside, batch.words)
    head, tail = place - batch.head[:, None], place - batch.tail[:, None]
    piece = 1 + (head > 0).long() + (tail > 0).long()
    return words, (head + longest + 1) * inside, (tail + longest + 1) * inside, piece * inside


def train(net: Published, optimiser: torch.optim.Optimizer, inputs: Padded, labels: Tensor) -> Tensor:
    """One step: its loss."""
    net.train()
    loss = nn.functional.cross_entropy(net(*inputs), labels)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return loss.detach()


def score(net: Published, inputs: Padded) -> Tensor:
    """p(r | sentence), [S, R]."""
    net.eval()
    with torch.inference_mode():
        return net(*inputs).softmax(1)  # type: ignore[no-any-return]
