"""Sentences as word pieces in a batch, and groups of them with similar lengths, which are padded to one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrel.extractors.batches import Batch

PASS_PIECES = 2048  # in one pass: enough for full speed, few enough to stay in the cache
PASS_PADDING = 48  # padding pieces that cost less than one more pass, in training


@dataclass(frozen=True, slots=True)
class PieceBatch(Batch):
    """Sentences as word pieces; an entity may have several."""

    head_end: torch.Tensor  # [S] int64, the piece after the head's last
    tail_end: torch.Tensor  # [S] int64, likewise the tail's


@dataclass(frozen=True, slots=True)
class Group:
    """Some sentences of a batch, `B` of them and `L` pieces long, shorter ones padded."""

    sentences: list[int]
    pieces: Tensor  # [B, L], into the batch's words; padding repeats a sentence's first piece
    real: Tensor | None  # [B, L], which of them are not padding; none if all are
    head: Tensor  # [B, w], where in its sentence each of the head's pieces is, the first again for padding
    head_real: Tensor  # [B, w]
    tail: Tensor  # [B, v], likewise
    tail_real: Tensor  # [B, v]


def groups(batch: PieceBatch) -> Iterator[Group]:
    """All sentences of a batch in groups of similar length, the shortest first."""
    lengths = batch.starts.diff().tolist()
    for sentences in alike(lengths):
        which = torch.tensor(sentences, device=batch.words.device)
        start = batch.starts[which]
        pieces, real = _runs(start, batch.starts[which + 1])
        even = lengths[sentences[0]] == lengths[sentences[-1]]
        yield Group(
            sentences,
            pieces,
            None if even else real,
            *_runs(batch.head[which], batch.head_end[which]),
            *_runs(batch.tail[which], batch.tail_end[which]),
        )


def alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of these lengths, each once, in groups whose padding costs less than one more pass would."""
    group: list[int] = []
    padding = longest = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[place]
        padding += len(group) * (length - longest)
        if group and (padding > PASS_PADDING or (len(group) + 1) * length > PASS_PIECES):
            yield group
            group, padding = [], 0
        group.append(place)
        longest = length
    if group:
        yield group


def _runs(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers from each start to its end as rows, filled up with the start; and which are not padding."""
    size = (end - start)[:, None]
    column = torch.arange(int(size.max()), device=start.device)
    real = column < size
    return start[:, None] + column * real, real
