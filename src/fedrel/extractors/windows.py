"""A document longer than an encoder reads at once, in windows that overlap.

Windows are spread evenly and share at least a quarter of their room with the next. Where two fit, they are ATLOP's:
one from the beginning, one up to the end. Each is framed by the encoder's special pieces, as a whole text would be;
of these only the ones at the document's own ends are the document's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHARED = 4  # one part in so many of a window is read by the next one, too, at least


class Window(NamedTuple):
    """The pieces [first, end) of a document, which a window holds from its place `front` on."""

    first: int
    end: int
    front: int


class Frame(NamedTuple):
    """The special pieces that stand before and after every text."""

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
