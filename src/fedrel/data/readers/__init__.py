"""Corpora by format: each reader turns one file into a stream of instances, or says which line it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedrel.data.instances import Instance
from fedrel.data.readers import mirgene, nyt10, opennre
from fedrel.errors import UserError, nearest

Reader = Callable[..., Iterator[Instance]]  # (path, *, relations, and what the format offers to choose)

READERS: dict[str, Reader] = {
    "nyt10": nyt10.read,
    "opennre": opennre.read,
    "jsonl": opennre.read,  # a user's own text takes the same form
    "mirgene": mirgene.read,
}


def reader(name: str) -> Reader:
    """The reader of a format."""
    if name not in READERS:
        raise UserError(f"no reader is called {name!r}", remedy=nearest(name, READERS))
    return READERS[name]
