"""One sentence with two marked entities: what every reader yields and every corpus is built from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

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
