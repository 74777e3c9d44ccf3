"""Corpora by format: each reader turns a file or folder into a stream of instances, or says what it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedrel.data.readers import chemprot, chemprot_scibert, gad, i2b2, mirgene, nyt10, opennre, pgr
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance
from fedrel.errors import UserError, nearest

Reader = Callable[..., Iterator[Instance]]  # (path, *, relations, and what the format offers to choose)

READERS: dict[str, Reader] = {
    "nyt10": nyt10.read,
    "opennre": opennre.read,
    "jsonl": opennre.read,  # a user's own text takes the same form
    "mirgene": mirgene.read,
    "gad": gad.read,  # EU-ADR too
    "i2b2": i2b2.read,
    "pgr": pgr.read,
    "chemprot": chemprot.read,
    "chemprot-scibert": chemprot_scibert.read,
}

SOURCED = ("opennre", "jsonl", "mirgene")  # formats in which the user names the field that holds the source

# Of the formats that fix them: a class keeps its number, even where the training data have none of it.
RELATIONS: dict[str, RelationMap] = {
    "gad": gad.RELATIONS,
    "i2b2": i2b2.RELATIONS,
    "pgr": pgr.RELATIONS,
    "chemprot": chemprot.RELATIONS,
    "chemprot-scibert": chemprot.RELATIONS,
}


def reader(name: str) -> Reader:
    """The reader of a format."""
    if name not in READERS:
        raise UserError(f"no reader is called {name!r}", hint=nearest(name, READERS))
    return READERS[name]
