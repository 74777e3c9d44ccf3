"""A document with its entities, mentions, pairs and facts: what readers yield and corpora are built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedrel.data.text import Span


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where an entity is named: the characters [start, end) of the document's text."""

    name: str  # as the annotators wrote it down; the text may space or spell it a little differently
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """What a knowledge base has under one id, with every mention of it in the document, from left to right."""

    id: str
    type: str
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation that the document states between two of its entities, given by their numbers in it.

    `evidence` holds the numbers of the sentences that tell it, where the corpus says so.
    """

    head: int
    tail: int
    relation: str
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A text, cut into sentences and tokens, and what is annotated in it.

    No token straddles the edge of a mention, and no mention the end of a sentence. `pairs` are the (head, tail)
    that a model is asked about, in ascending order; a pair has the relations of its facts, or none. `left_out`
    marks those that are neither trained on nor evaluated (`not_include` in EoG's files). `handled` counts what
    the reader met and dealt with, by the keys of `HANDLED`.
    """

    id: str
    text: str
    sentences: Sequence[Sequence[Span]]  # the tokens of each, as characters of the text
    entities: Sequence[Entity]
    pairs: NDArray[np.int32]  # [pairs, 2] into `entities`
    left_out: NDArray[np.bool_]  # [pairs]
    facts: Sequence[Fact]
    handled: Mapping[str, int] = field(default_factory=dict)


HANDLED = {
    "split_tokens": "tokens cut in two at the edge of a mention",
    "merged_sentences": "sentence ends ignored because they fell inside a mention",
    "unlinked_mentions": "mentions without a knowledge base id, which are no entity",
    "repeated_mentions": "mentions annotated twice, kept once",
    "type_conflicts": "mentions of another type than their entity's first, which stands",
    "names_differ": "mentions whose name is spelt or spaced otherwise than the text, which stands",
    "self_relations": "relations of an entity with itself, left out",
    "other_types": "relations between types that make no pair, left out",
    "repeated_facts": "facts stated twice, kept once",
    "left_out_pairs": "pairs neither trained on nor evaluated (hypernyms of a related entity)",
}
LOST = frozenset(
    {"unlinked_mentions", "self_relations", "other_types"}
)  # of these something was not taken over
