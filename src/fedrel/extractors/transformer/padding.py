"""Texts of similar length, padded to one length, for encoders that cannot read packed pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

PASS_PIECES = 2048  # in one pass: enough for full speed, few enough to stay in the cache
PADDING = 0.05  # the largest share of a pass that is padding


def alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of these lengths, each once, in groups of similar length: at most `PADDING` of one is padding."""
    group: list[int] = []
    padding = longest = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[place]
        padding += len(group) * (length - longest)
        pieces = (len(group) + 1) * length
        if group and (padding > PADDING * pieces or pieces > PASS_PIECES):
            yield group
            group, padding = [], 0
        group.append(place)
        longest = length
    if group:
        yield group


def padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Texts [L, e] as one tensor [B, L, e], and which of its pieces are not padding, [B, L]; none if all are."""
    together = nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    sizes = torch.tensor([len(text) for text in texts], device=together.device)
    real = torch.arange(together.shape[1], device=together.device) < sizes[:, None]
    return together, None if bool(real.all()) else real
