"""A document in the making: mentions and relations as a file lists them become entities, pairs and facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedrel.data.documents.document import Document, Entity, Fact, Mention
from fedrel.data.documents.pairs import Directions, PairTypes, candidates
from fedrel.data.instances import NA
from fedrel.data.text import Span


class Draft:
    """Collects what is said of one document; mentions with the same knowledge base id are one entity."""

    def __init__(self) -> None:
        self.handled: Counter[str] = Counter()
        self._types: dict[str, str] = {}
        self._mentions: dict[str, dict[Span, Mention]] = {}
        self._facts: dict[tuple[str, str, str], dict[int, None]] = {}  # with an ordered set of sentences

    def mention(self, identity: str, kind: str, mention: Mention) -> None:
        """An entity is mentioned here."""
        if self._types.setdefault(identity, kind) != kind:
            self.handled["type_conflicts"] += 1
        spans = self._mentions.setdefault(identity, {})
        place = (mention.start, mention.end)
        self.handled["repeated_mentions"] += place in spans
        spans.setdefault(place, mention)

    def knows(self, identity: str) -> bool:
        """Is the entity mentioned?"""
        return identity in self._mentions

    def fact(self, head: str, relation: str, tail: str, evidence: Iterable[int] = ()) -> None:
        """A relation is stated; NA states nothing, and of an entity to itself is none."""
        if head == tail:
            self.handled["self_relations"] += 1
        elif relation != NA:
            key = (head, relation, tail)
            self.handled["repeated_facts"] += key in self._facts
            self._facts.setdefault(key, {}).update(dict.fromkeys(evidence))

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
            Fact(number[head], number[tail], relation, tuple(sorted(evidence)))
            for (head, relation, tail), evidence in self._facts.items()
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
        if pair_types is not None:
            wanted = {(head, tail) for head, tail in pair_types}
            kept = [fact for fact in facts if (types[fact.head], types[fact.tail]) in wanted]
            self.handled["other_types"] += len(facts) - len(kept)
            facts = kept
        nothing = np.zeros(len(pairs), np.bool_)
        return Document(identity, text, sentences, entities, pairs, nothing, facts, +self.handled)
