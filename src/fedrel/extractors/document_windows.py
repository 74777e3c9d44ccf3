"""Documents from their windows: which mentions a window shows, and what its parts come to where windows overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrel.extractors.document_batch import DocumentBatch
from fedrel.extractors.windows import Window


@dataclass(frozen=True, slots=True)
class Task:
    """A window to be read, and the mentions of its document whose opening markers it shows."""

    number: int  # in the batch
    window: Window
    length: int  # in pieces, with its frame
    mentions: Tensor  # [m], by their numbers in the document
    where: Tensor  # [m], their markers' places in the window


@dataclass(frozen=True, slots=True)
class Part:
    """What the encoder makes of a window: the states of its pieces, and what its mentions attend to."""

    task: Task
    states: Tensor  # [l, d]
    attention: Tensor  # [h, m, l]

    @property
    def own(self) -> slice:
        """The pieces of the window that are the document's, and not only its frame."""
        window = self.task.window
        return slice(window.front, window.front + window.end - window.first)


def tasks(batch: DocumentBatch) -> Iterator[tuple[int, list[Task]]]:
    """The windows of each document that has pairs; the others need not be read."""
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

    `share` [E, M] is each mention's share in its entity. A piece that several windows read has the mean of its
    states. A mention attends to what it attends to in all its windows together, as shares of the whole, without
    what falls on frames that are not the document's (as in ATLOP).
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


_LEAST = 1e-20  # dropout may leave a mention without any attention
