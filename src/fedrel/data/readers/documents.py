"""Document corpora by format: each reader turns one file into documents, or says which line it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedrel.data.documents import Document
from fedrel.data.readers import docred, eog, pubtator
from fedrel.errors import UserError, nearest

Reader = Callable[..., Iterator[Document]]  # (path, *, relations, and what the format offers to choose)

READERS: dict[str, Reader] = {
    "pubtator": pubtator.read,
    "eog": eog.read,
    "docred": docred.read,
}


def reader(name: str) -> Reader:
    """The reader of a format."""
    if name not in READERS:
        raise UserError(f"no reader of documents is called {name!r}", hint=nearest(name, READERS))
    return READERS[name]
