"""Sentences as documents and documents as sentences, and what the one cannot hold of the other.

A document says what is true of entities; a sentence has one mention of each of two of them. A document's pairs that
share a sentence become instances, and a sentence becomes a short document, whose entities are those of all its
instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fedrel.data.annotations import Document, Draft
from fedrel.data.annotations import Mention as Place
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import tokenise, with_whole_mentions

Key = tuple[str, int, int, str, int, int, str]


def sentences_of(document: Document) -> Iterator[Instance]:
    """A document's sentences that mention both entities of a pair, once for each such pair and relation, or NA.

    Of several places, the first counts at which the two mentions do not overlap.
    """
    return (instance for _, instance in _placed(document))


def document_of(instances: Sequence[Instance], identity: str) -> Document:
    """One sentence as a document: the entities and facts of all instances of it."""
    text = instances[0].text
    draft = Draft()
    for one in instances:
        for mention in (one.head, one.tail):
            draft.mention(mention.id, mention.type, Place(mention.name, mention.start, mention.end))
        draft.fact(one.head.id, one.relation, one.tail.id)
    tokens = list(instances[0].tokens or tokenise(text))
    return draft.document(identity, text, with_whole_mentions([tokens], draft.spans, draft.handled))


def as_sentences(documents: Iterable[Document], lost: Counter[str]) -> Iterator[Instance]:
    """The sentences of documents, one after another; what they leave out is counted."""
    for document in documents:
        placed = list(_placed(document))
        found = [instance for _, instance in placed]
        ids = [entity.id for entity in document.entities]
        facts = {(ids[fact.head], fact.relation, ids[fact.tail]) for fact in document.facts}
        told = {(one.head.id, one.relation, one.tail.id) for one in found}
        used = {(end.id, start + end.start) for start, one in placed for end in (one.head, one.tail)}
        mentions = sum(len(entity.mentions) for entity in document.entities)
        lost["relations of entities that no sentence mentions together"] += len(facts - told)
        lost["relations' attributes or evidence"] += sum(
            bool(fact.attribute or fact.evidence) for fact in document.facts
        )
        lost["mentions that are in no pair"] += mentions - len(used)
        lost["sentences that mention no pair"] += len(document.sentences) - len(
            {start for start, _ in placed}
        )
        yield from found


def as_documents(instances: Iterable[Instance], name: str, lost: Counter[str]) -> Iterator[Document]:
    """Each sentence as a document; neighbouring instances of one sentence share it.

    Its id is the sentence's source, or `name`, with a number where that is taken.
    """
    taken: Counter[str] = Counter()
    for (_, source, document), group in groupby(
        instances, key=lambda one: (one.text, one.source, one.document)
    ):
        rows = list(group)
        made = document_of(rows, _new_id(document or source or name, taken))
        back = {_key(one) for one in sentences_of(made)}
        lost["pairs of single mentions, which a document does not tell from their entities"] += sum(
            _key(one) not in back for one in rows
        )
        lost["types of mentions other than their entity's first"] += made.handled.get("type_conflicts", 0)
        lost["names that are neither in the text nor ids"] += sum(
            mention.name not in (mention.id, one.text[mention.start : mention.end])
            for one in rows
            for mention in (one.head, one.tail)
        )
        lost["whether sentences state their relation"] += sum(one.expresses is not None for one in rows)
        yield made


def _placed(document: Document) -> Iterator[tuple[int, Instance]]:
    """The same, each with the place of its sentence in the document."""
    related: dict[tuple[int, int], list[str]] = {}
    for fact in document.facts:
        related.setdefault((fact.head, fact.tail), []).append(fact.relation)
    for tokens in document.sentences:
        if not tokens:
            continue
        start, end = tokens[0][0], tokens[-1][1]
        own = [
            [one for one in entity.mentions if start <= one.start and one.end <= end]
            for entity in document.entities
        ]
        for head, tail in document.pairs.tolist():
            places = ((h, t) for h in own[head] for t in own[tail] if h.end <= t.start or t.end <= h.start)
            for ends in list(places)[:1]:
                entities = (document.entities[head], document.entities[tail])
                first, second = (
                    Mention(entity.id, one.name, one.start - start, one.end - start, entity.type)
                    for entity, one in zip(entities, ends, strict=True)
                )
                text = document.text[start:end]
                for relation in related.get((head, tail), [NA]):
                    yield start, Instance(text, first, second, relation, document.id, document=document.id)


def _new_id(wanted: str, taken: Counter[str]) -> str:
    identity = wanted
    while identity in taken:
        taken[wanted] += 1
        identity = f"{wanted}:{taken[wanted]}"
    taken[identity] = 1
    return identity


def _key(one: Instance) -> Key:
    head, tail = one.head, one.tail
    return head.id, head.start, head.end, tail.id, tail.start, tail.end, one.relation
