"""One document and what is annotated in it: entities, their mentions, facts, and the pairs a model is asked about.

Readers of documents collect what a file says in a `Draft`, which makes the `Document`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrel.data.relations import NA
from fedrel.data.text import Span

Directions = Literal["both", "once", "annotated"]
T = TypeVar("T")
PairTypes = Sequence[Sequence[str]]  # (head type, tail type) each


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where an entity is named: the characters [start, end) of the document's text."""

    name: str  # as the annotators wrote it; its spacing or spelling may differ from the text
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a knowledge base, by its id, with every mention of it in the document from left to right."""

    id: str
    type: str
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation that the document states between two of its entities, given by their numbers in it.

    `evidence` holds the numbers of the sentences that show it, where the corpus names them; `attribute` what else
    it says of the fact, as BioRED's `Novel`.
    """

    head: int
    tail: int
    relation: str
    evidence: tuple[int, ...] = ()
    attribute: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A text, cut into sentences and tokens, and what is annotated in it.

    Each mention is whole tokens of one sentence. `pairs` are the (head, tail) that a model is asked about, in
    ascending order; a pair has the relations of its facts, or none. `left_out` marks those that are neither
    trained on nor evaluated (`not_include` in EoG's files). `handled` counts what the reader had to correct
    or leave out, by the keys of `HANDLED`. `source` names the site that the text is from, where that is known.
    """

    id: str
    text: str
    sentences: Sequence[Sequence[Span]]  # the tokens of each, as characters of the text
    entities: Sequence[Entity]
    pairs: NDArray[np.int32]  # [pairs, 2] into `entities`
    left_out: NDArray[np.bool_]  # [pairs]
    facts: Sequence[Fact]
    handled: Mapping[str, int] = field(default_factory=dict)
    source: str = ""


HANDLED = {
    "split_tokens": "tokens cut in two at the edge of a mention",
    "merged_sentences": "sentence ends ignored because they fell inside a mention",
    "unlinked_mentions": "mentions without a knowledge base id, left out",
    "repeated_mentions": "mentions annotated twice, kept once",
    "type_conflicts": "mentions of another type than their entity's first, which is kept",
    "names_differ": "mentions whose name is spelt or spaced otherwise than the text, which is kept",
    "self_relations": "relations of an entity with itself, left out",
    "other_types": "relations between types that make no pair, left out",
    "repeated_facts": "facts stated twice, kept once",
    "left_out_pairs": "pairs neither trained on nor evaluated (hypernyms of a related entity)",
}
LOST = frozenset({"unlinked_mentions", "self_relations", "other_types"})  # annotations that are not used


def candidates(
    types: Sequence[str],
    wanted: PairTypes | None,
    related: Collection[tuple[int, int]],
    directions: Directions = "both",
) -> NDArray[np.int32]:
    """The (head, tail) of a document whose entities have these types, in ascending order, [pairs, 2].

    `wanted` lists the types that make a pair, as (Chemical, Disease); without it all do. Where two entities
    could be head and tail either way round, `"both"` takes both ways; `"once"`, for relations that have no
    direction, the one with the first entity as head, whatever is related. `"annotated"` looks at the labels: it
    takes the ways that are related and, if neither is, the one with the first entity as head. That is how
    FedLCC's Table 1 counts CHR.
    """
    size = len(types)
    mask = ~np.eye(size, dtype=np.bool_)
    if wanted is not None:
        mask &= _of_types(types, wanted)
    if directions == "once":
        mask &= ~(mask & mask.T) | np.triu(mask)
    if directions == "annotated":
        facts = np.zeros((size, size), np.bool_)
        if related:
            facts[tuple(np.array(list(related)).T)] = True
        either_way = mask & mask.T
        mask &= ~either_way | facts | np.triu(~(facts | facts.T))
    return np.argwhere(mask).astype(np.int32)


def asked_about(
    facts: Mapping[tuple[int, int], Mapping[str, T]], pairs: NDArray[np.int32], directions: Directions
) -> tuple[dict[tuple[int, int], dict[str, T]], list[tuple[int, int]]]:
    """The facts by the pair that is asked about, and the (head, tail) that no pair asks about.

    Where a pair is asked about once, what is said of it the other way round is said of it, too.
    """
    asked = set(map(tuple, pairs.tolist()))
    kept: dict[tuple[int, int], dict[str, T]] = {}
    lost = []
    for ends, said in facts.items():
        turned = ends[::-1] if directions == "once" and ends not in asked else ends
        if turned in asked:
            kept[turned] = {**said, **kept.get(turned, {})}
        else:
            lost.append(ends)
    return kept, lost


def places(pairs: NDArray[np.int32], wanted: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where each of the wanted (head, tail) is among ascending pairs; -1 for one that is not."""
    keys, sought = _keys(pairs), _keys(wanted)
    place = np.searchsorted(keys, sought)
    found = place < len(keys)
    found[found] = keys[place[found]] == sought[found]
    return np.where(found, place, -1)


def _keys(pairs: NDArray[np.integer]) -> NDArray[np.int64]:
    head, tail = np.asarray(pairs, np.int64).reshape(-1, 2).T
    return head << 32 | tail


def _of_types(types: Sequence[str], wanted: PairTypes) -> NDArray[np.bool_]:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(types))}
    allowed = np.zeros((len(numbers), len(numbers)), np.bool_)
    for head, tail in wanted:
        if head in numbers and tail in numbers:
            allowed[numbers[head], numbers[tail]] = True
    code = np.array([numbers[name] for name in types], np.int64)
    return allowed[code[:, None], code[None, :]]


class Draft:
    """Collects the annotations of one document; mentions with the same knowledge base id are one entity."""

    def __init__(self) -> None:
        self.handled: Counter[str] = Counter()
        self._types: dict[str, str] = {}
        self._mentions: dict[str, dict[Span, Mention]] = {}
        self._facts: dict[tuple[str, str, str], dict[int, None]] = {}  # with an ordered set of sentences
        self._attributes: dict[tuple[str, str, str], str] = {}

    def mention(self, identity: str, kind: str, mention: Mention) -> None:
        """Add a mention of an entity."""
        if self._types.setdefault(identity, kind) != kind:
            self.handled["type_conflicts"] += 1
        spans = self._mentions.setdefault(identity, {})
        place = (mention.start, mention.end)
        self.handled["repeated_mentions"] += place in spans
        spans.setdefault(place, mention)

    def knows(self, identity: str) -> bool:
        """Whether the entity has a mention."""
        return identity in self._mentions

    def fact(
        self, head: str, relation: str, tail: str, evidence: Iterable[int] = (), attribute: str = ""
    ) -> None:
        """Add a fact. NA is none, and a relation of an entity with itself is left out."""
        if head == tail:
            self.handled["self_relations"] += 1
        elif relation != NA:
            key = (head, relation, tail)
            self.handled["repeated_facts"] += key in self._facts
            self._facts.setdefault(key, {}).update(dict.fromkeys(evidence))
            self._attributes.setdefault(key, attribute)

    @property
    def spans(self) -> list[Span]:
        """Where the mentions are, each place once."""
        return list(dict.fromkeys(span for spans in self._mentions.values() for span in spans))

    def entities(self, *, by_place: bool = True) -> list[Entity]:
        """The entities, numbered by where they are first mentioned, or as they were added."""
        entities = [
            Entity(identity, self._types[identity], tuple(spans[place] for place in sorted(spans)))
            for identity, spans in self._mentions.items()
        ]
        if by_place:
            entities.sort(key=lambda entity: entity.mentions[0].start)
        return entities

    def facts(self, entities: Sequence[Entity]) -> list[Fact]:
        """The facts between these entities."""
        number = {entity.id: number for number, entity in enumerate(entities)}
        return [
            Fact(number[head], number[tail], relation, tuple(sorted(evidence)), self._attributes[key])
            for key, evidence in self._facts.items()
            for head, relation, tail in [key]
        ]

    def document(
        self,
        identity: str,
        text: str,
        sentences: Sequence[Sequence[Span]],
        *,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
        by_place: bool = True,
    ) -> Document:
        """The document, asked about every pair of the wanted types; facts of other types are left out."""
        entities = self.entities(by_place=by_place)
        facts = self.facts(entities)
        types = [entity.type for entity in entities]
        pairs = candidates(types, pair_types, {(fact.head, fact.tail) for fact in facts}, directions)
        stated: dict[tuple[int, int], dict[str, Fact]] = {}
        for fact in facts:
            stated.setdefault((fact.head, fact.tail), {})[fact.relation] = fact
        by_pair, lost = asked_about(stated, pairs, directions)
        kept = [
            replace(fact, head=head, tail=tail)
            for (head, tail), said in by_pair.items()
            for fact in said.values()
        ]
        others = sum(len(stated[ends]) for ends in lost)
        self.handled["other_types"] += others
        self.handled["repeated_facts"] += len(facts) - len(kept) - others
        nothing = np.zeros(len(pairs), np.bool_)
        return Document(identity, text, sentences, entities, pairs, nothing, kept, +self.handled)


def agree(name: str, found: str, handled: Counter[str]) -> bool:
    """Whether a mention's name is what the text has at its place; other case or spacing is counted but accepted."""
    if not found.strip() or _plain(name) != _plain(found):
        return False
    handled["names_differ"] += name != found
    return True


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()
