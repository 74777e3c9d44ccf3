"""One sentence with two marked entities: what every reader yields and every corpus is built from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.store import TABLES, Strings, map_columns

NA = "NA"  # the relation of a pair that no fact relates; the field's own name for it


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity in a sentence: its id in the knowledge base, its name, and its characters [start, end).

    `type` is the kind of thing it is (`GENE`, `problem`), where that is known: the label that entity blinding
    puts in its place.
    """

    id: str
    name: str
    start: int
    end: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A sentence, the pair it mentions and the relation it is labelled with.

    `tokens` are the character spans of a sentence that came tokenised; without them the corpus tokenises.
    `expresses` is the truth where it is known (the built-in world): does the sentence state the relation,
    or does it only mention the pair?
    """

    text: str
    head: Mention
    tail: Mention
    relation: str
    source: str = ""
    expresses: bool | None = None
    tokens: tuple[tuple[int, int], ...] | None = None


def own_ids(line: int, text: str) -> tuple[str, str]:
    """Ids for head and tail that no other line has, for a corpus that does not say who its entities are.

    Every bag is then one sentence, and a split by pair is one by sentence. They follow from what the line says
    and where it stands, not from the file's name: the corpus is the same wherever its files are kept.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return f"{line}:{digest}:head", f"{line}:{digest}:tail"


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


def open_corpus(folder: Path) -> Corpus:
    """Map a folder that `build` wrote; one that is not a corpus, or is damaged, is refused."""
    fingerprint, columns = map_columns(folder)
    parts: dict[str, Any] = dict(columns)
    for name in TABLES:
        parts[name] = Strings(parts.pop(f"{name}_text"), parts.pop(f"{name}_starts"))
    return Corpus(folder, fingerprint, **parts)
