"""Documents longer than an encoder can read at once, in windows that overlap.

Windows are spread evenly, and each shares at least a quarter of its pieces with the next. If two are enough, they
are ATLOP's: one from the beginning, one up to the end. Each has the encoder's special pieces around it, its frame,
as a whole text has; only those at the document's own ends belong to the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrel.extractors.batches import Batch

SHARED = 4  # at least one part in so many of a window is also in the next one


class Window(NamedTuple):
    """The pieces [first, end) of a document; in the window, they begin at the place `front`."""

    first: int
    end: int
    front: int


class Frame(NamedTuple):
    """The special pieces before and after every text."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


def windows(length: int, frame: Frame, limit: int) -> list[Window]:
    """The windows of a document of `length` pieces, its frame included, for an encoder that reads `limit`."""
    if length <= limit:
        return [Window(0, length, 0)]
    front = len(frame.prefix)
    around = front + len(frame.suffix)
    room, content = limit - around, length - around
    count = 1 - -(content - room) // (room - room // SHARED)
    starts = np.rint(np.linspace(0, content - room, count)).astype(int).tolist()
    found = [Window(front + start, front + start + room, front) for start in starts]
    found[0] = Window(0, found[0].end, 0)
    found[-1] = Window(found[-1].first, length, front)
    return found


@dataclass(frozen=True, slots=True)
class DocumentBatch(Batch):
    """`D` documents in `W` windows, with `M` mentions of `E` entities and `P` pairs.

    Instead of sentences, `words` and `starts` are about windows; `head` and `tail` are about pairs, and have
    entities' numbers in the batch. Bag d is the pairs of document d. `labels` are [P, R - 1] floats, 1 for the
    relations that a pair has; `NA`, which means none, has no column. `rows` are the documents' rows.
    """

    windows: tuple[tuple[Window, ...], ...]  # of each document
    lengths: tuple[int, ...]  # [D], pieces of each document
    entities: tuple[int, ...]  # [D + 1], document d has the entities entities[d]:entities[d + 1]
    mentions: tuple[int, ...]  # [D + 1], likewise its mentions, by entity
    entity: torch.Tensor  # [M] int64, the entity of each mention
    place: torch.Tensor  # [M] int64, the place of its opening marker in its document
    pairs: np.ndarray  # [P] int64, the pairs' numbers in the corpus


@dataclass(frozen=True, slots=True)
class Task:
    """A window to be read, and the mentions of its document whose opening markers are in it."""

    number: int  # in the batch
    window: Window
    length: int  # in pieces, with its frame
    mentions: Tensor  # [m], by their numbers in the document
    where: Tensor  # [m], their markers' places in the window


@dataclass(frozen=True, slots=True)
class Part:
    """The encoder's output for a window: the states of its pieces, and the attention of its mentions."""

    task: Task
    states: Tensor  # [l, d]
    attention: Tensor  # [h, m, l]

    @property
    def own(self) -> slice:
        """The pieces of the window that belong to the document, without the frame."""
        window = self.task.window
        return slice(window.front, window.front + window.end - window.first)


def tasks(batch: DocumentBatch) -> Iterator[tuple[int, list[Task]]]:
    """The windows of each document that has pairs; documents without pairs need not be read."""
    starts, bags = batch.starts.tolist(), batch.bags.tolist()
    number = 0
    for document, windows in enumerate(batch.windows):
        first, number = number, number + len(windows)
        if bags[document] == bags[document + 1]:
            continue
        place = batch.place[batch.mentions[document] : batch.mentions[document + 1]]
        found = []
        for at, window in enumerate(windows, first):
            mentions = ((window.first <= place) & (place < window.end)).nonzero().squeeze(1)
            where = place[mentions] - window.first + window.front
            found.append(Task(at, window, starts[at + 1] - starts[at], mentions, where))
        yield document, found


def merge(parts: Sequence[Part], share: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """A document's states, [L, d], and its entities' attention, [h, E, L], from its windows.

    `share` [E, M] is each mention's share in its entity. The state of a piece that is in several windows is their
    mean. A mention's attention is the sum over its windows, without frames that do not belong to the document,
    divided by its total (as in ATLOP).
    """
    if len(parts) == 1:
        (part,) = parts
        return part.states, share[:, part.task.mentions] @ part.attention
    width, heads = parts[0].states.shape[1], len(parts[0].attention)
    states, read = share.new_zeros((length, width)), share.new_zeros((length, 1))
    whole = share.new_zeros((heads, share.shape[1]))
    for part in parts:
        span = slice(part.task.window.first, part.task.window.end)
        states[span] += part.states[part.own]
        read[span] += 1
        whole = whole.index_add(1, part.task.mentions, part.attention[:, :, part.own].sum(2))
    attention = share.new_zeros((heads, len(share), length))
    for part in parts:
        seen = part.task.mentions
        shares = part.attention[:, :, part.own] / whole[:, seen, None].clamp_min(_LEAST)
        attention[:, :, part.task.window.first : part.task.window.end] += share[:, seen] @ shares
    return states / read, attention


_LEAST = 1e-20  # the smallest divisor: dropout may leave a mention without any attention
