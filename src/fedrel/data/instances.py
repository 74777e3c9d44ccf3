"""One sentence with two marked entities: what every reader yields and every corpus is built from."""

from __future__ import annotations

from dataclasses import dataclass

NA = "NA"  # the relation of a pair that no fact relates; the field's own name for it


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity in a sentence: its id in the knowledge base, its name, and its characters [start, end)."""

    id: str
    name: str
    start: int
    end: int


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
