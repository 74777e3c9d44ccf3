"""A corpus as memory-mapped columns: built once from a stream of instances, then opened in milliseconds.

A column is one file of numbers. Nothing is padded and no Python object stands for a sentence, so what a run
holds in memory is what it touches, however large the corpus and however many sites share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.instances import NA, Instance
from fedrel.data.layout import TABLES, map_columns
from fedrel.data.strings import Strings
from fedrel.data.writing import Writer
from fedrel.errors import UserError
from fedrel.files import atomic_folder

TRAIN, DEV, TEST = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """`N` instances with `T` tokens in all, `P` entity pairs and `Q` triples; read only."""

    folder: Path
    fingerprint: str  # SHA-256 of everything below

    tokens: NDArray[np.int32]  # [T] into `words`
    starts: NDArray[np.int64]  # [N + 1], instance n is tokens[starts[n]:starts[n + 1]]
    head: NDArray[np.int32]  # [N] the head's first token, counted within its sentence
    tail: NDArray[np.int32]  # [N] likewise the tail's
    head_span: NDArray[np.int32]  # [N, 2] the head's characters [start, end) in its text
    tail_span: NDArray[np.int32]  # [N, 2]
    head_type: NDArray[np.int32]  # [N] into `types`
    tail_type: NDArray[np.int32]  # [N]
    pair: NDArray[np.int32]  # [N] into `pairs`
    pairs: NDArray[np.int32]  # [P, 2] head and tail, into `entities`
    relation: NDArray[np.int32]  # [N] into `relations`
    triple: NDArray[np.int32]  # [N] into `triples`
    triples: NDArray[np.int32]  # [Q, 2] into `pairs` and `relations`
    source: NDArray[np.int32]  # [N] into `sources`
    split: NDArray[np.int8]  # [N] TRAIN, DEV or TEST
    expresses: NDArray[np.int8]  # [N] does the text state the relation? 1 yes, 0 no, -1 not known
    sentence: NDArray[np.int64]  # [N] a hash of the text: tells the same sentence under two labels
    text: NDArray[np.uint8]  # UTF-8
    text_starts: NDArray[np.int64]  # [N + 1]

    words: Strings  # lower-cased
    entities: Strings  # ids
    names: Strings  # of the entities, the first seen of each
    relations: Strings  # NA first
    sources: Strings
    types: Strings  # of the mentions; the first is "", which says that it is not known

    def __len__(self) -> int:
        return len(self.relation)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process is sent the folder, not the contents."""
        return open_corpus, (self.folder,)

    def rows(self, split: int) -> NDArray[np.int64]:
        """The instances of one split, in order."""
        return np.flatnonzero(self.split == split)

    def text_of(self, row: int) -> str:
        """The sentence as it was read."""
        return self.text[self.text_starts[row] : self.text_starts[row + 1]].tobytes().decode()

    def token_count(self, row: int) -> int:
        """How long the sentence is."""
        return int(self.starts[row + 1] - self.starts[row])

    def head_name(self, row: int) -> str:
        """What the head entity is called."""
        return self.names[int(self.pairs[self.pair[row], 0])]

    def tail_name(self, row: int) -> str:
        """What the tail entity is called."""
        return self.names[int(self.pairs[self.pair[row], 1])]


def build(
    instances: Iterable[tuple[int, Instance]],
    folder: Path,
    relations: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> Corpus:
    """Write (split, instance) pairs to `folder` as columns, in one pass; it appears whole or not at all.

    `progress` is told now and then how many instances are in.
    """
    if not relations or relations[0] != NA:
        raise UserError(f"the first relation must be {NA!r}, found {list(relations[:1])}")
    with atomic_folder(folder) as part:
        writer = Writer(part, relations)
        for count, (split, instance) in enumerate(instances, 1):
            writer.add(split, instance)
            if count % 4096 == 0:
                writer.flush()
                if progress:
                    progress(count)
        writer.finish()
        if progress:
            progress(writer.rows)
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """Map a folder that `build` wrote; one that is not a corpus, or is damaged, is refused."""
    fingerprint, columns = map_columns(folder)
    parts: dict[str, Any] = dict(columns)
    for name in TABLES:
        parts[name] = Strings(parts.pop(f"{name}_text"), parts.pop(f"{name}_starts"))
    return Corpus(folder, fingerprint, **parts)
