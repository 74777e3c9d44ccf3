"""Texts with marked mentions, and what their readers share: the pairs of mentions, as sentences or as documents.

Many formats (ChemProt, brat, BioC, SpERT, CoNLL) say the same things in other ways: a text, mentions in it by their
key, and relations between keys. Their readers collect that in a `MarkedText`; which pairs are asked about, and
what becomes of mentions and relations that do not fit, is decided here.

A subclass of `MarkedSentences` or `MarkedDocuments` has a name and `texts`. Which pairs are asked about, and how
ids are split, are options that all of them have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedrel.data.annotations import (
    HANDLED,
    Directions,
    Document,
    Draft,
    PairTypes,
    agree,
    asked_about,
    candidates,
)
from fedrel.data.annotations import Mention as Place
from fedrel.data.problems import Problems
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Sentences, Span, segment, with_whole_mentions
from fedrel.errors import UserError

FAR = "relations between mentions in different sentences, left out"
SELF = "relations of an entity with itself, left out"
OTHER_TYPES = "relations between types that make no pair, left out"
UNLINKED = "relations of mentions without a knowledge base id, left out"
PARTED = "mentions in several parts, read from the first to the last"


@dataclass(frozen=True, slots=True)
class Marked:
    """A mention: its type, the characters [start, end), and the knowledge base's ids, if it is linked."""

    name: str
    type: str
    start: int
    end: int
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between two mentions, given by their keys, or between two entities, given by their ids."""

    name: str
    head: str
    tail: str
    attribute: str = ""


@dataclass(slots=True)
class MarkedText:
    """A text and what is marked in it.

    `parts`, as title and abstract, are cut into sentences by themselves; a text that came in sentences and tokens
    has those in `sentences`.
    """

    id: str
    text: str
    file: Path
    parts: Sequence[Span] = ()
    sentences: Sentences | None = None
    mentions: dict[str, Marked] = field(default_factory=dict)  # by key
    relations: list[Relation] = field(default_factory=list)
    handled: Counter[str] = field(default_factory=Counter)

    def error(self, problem: str, line: int | None, hint: str = "") -> UserError:
        """What is wrong with a line about this text."""
        return UserError(
            f"{self.id}: {problem}" if self.id else problem, file=self.file, line=line, hint=hint
        )

    def mark(self, key: str, mention: Marked, line: int | None) -> None:
        """Add a mention; a `UserError` if its key is there already, or its name is not at its place."""
        if key in self.mentions:
            raise self.error(
                f"the mention {key!r} is there twice", line, "give every mention a key of its own"
            )
        start, end = mention.start, mention.end
        inside = 0 <= start < end <= len(self.text)
        if not inside or not agree(mention.name, self.text[start:end], self.handled):
            found = repr(self.text[start:end]) if inside else f"a text of {len(self.text)} characters"
            problem = f"expected {mention.name!r} at [{start}, {end}), found {found}"
            raise self.error(problem, line, "offsets count the characters of the text from 0")
        self.mentions[key] = mention

    def relate(self, relation: Relation, line: int | None) -> None:
        """Add a relation between two mentions; a `UserError` if one of them is not there."""
        for key in (relation.head, relation.tail):
            if key not in self.mentions:
                problem = f"the relation {relation.name} names {key!r}, which is no mention"
                raise self.error(problem, line, "add the mention, or remove the relation")
        self.relations.append(relation)

    def tokens(self) -> Sentences:
        """The tokens of each sentence, so that no mention is cut."""
        spans = list(dict.fromkeys((one.start, one.end) for one in self.mentions.values()))
        if self.sentences is not None:
            return with_whole_mentions(self.sentences, spans, self.handled)
        return segment(self.text, self.parts or [(0, len(self.text))], spans, self.handled)


def instances(
    marked: MarkedText, problems: Problems, pair_types: PairTypes | None, directions: Directions = "both"
) -> Iterator[Instance]:
    """Every pair of mentions in one sentence, with its relations or NA; `annotations.candidates` says which pairs.

    A pair with two relations gives two instances. Relations that no pair can have are left out and counted.
    """
    related: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for one in marked.relations:
        if one.name != NA:
            related[one.head, one.tail][one.name] = None
    left = sum(map(len, related.values()))
    problems.note(HANDLED["names_differ"], marked.handled["names_differ"])
    for sentence in marked.tokens():
        start, end = sentence[0][0], sentence[-1][1]
        keys = _inside(marked, start, end)
        number = {key: place for place, key in enumerate(keys)}
        facts = {
            (number[head], number[tail]): names
            for (head, tail), names in related.items()
            if head in number and tail in number
        }
        left -= sum(map(len, facts.values()))
        own = sum(len(names) for (head, tail), names in facts.items() if head == tail)
        problems.note(SELF, own, left_out=True)
        types = [marked.mentions[key].type for key in keys]
        pairs = candidates(types, pair_types, facts, directions)
        labels, lost = asked_about(facts, pairs, directions)
        others = sum(len(facts[pair]) for pair in lost if pair[0] != pair[1])
        problems.note(OTHER_TYPES, others, left_out=True)
        text, offset = marked.text[start:end], start
        tokens = None  # running text is cut into words later, as all text is
        if marked.sentences is not None:
            tokens = tuple((first - offset, after - offset) for first, after in sentence)
        for head, tail in map(tuple, pairs.tolist()):
            mentions = [_within(marked, keys[place], offset) for place in (head, tail)]
            for relation in labels.get((head, tail), {NA: None}):
                yield Instance(
                    text,
                    mentions[0],
                    mentions[1],
                    relation,
                    marked.id,
                    tokens=tokens,
                    document=marked.id,
                )
    problems.note(FAR, left, left_out=True)


def document(
    marked: MarkedText, problems: Problems, pair_types: PairTypes | None, directions: Directions = "both"
) -> Document:
    """The document: mentions with the same knowledge base id are one entity; one without an id is left out.

    Where no mention of the text has an id, each mention is an entity by itself.
    """
    draft = Draft()
    draft.handled.update(marked.handled)
    linked = any(mention.ids for mention in marked.mentions.values())
    for key, mention in marked.mentions.items():
        identities = mention.ids if linked else (key,)
        for identity in identities:
            draft.mention(identity, mention.type, Place(mention.name, mention.start, mention.end))
        draft.handled["unlinked_mentions"] += not identities
    for one in marked.relations:
        heads, tails = (
            marked.mentions[key].ids if linked and key in marked.mentions else (key,)
            for key in (one.head, one.tail)
        )
        for head in heads:
            for tail in tails:
                draft.fact(head, one.name, tail, attribute=one.attribute)
        problems.note(UNLINKED, not (heads and tails), left_out=True)
    marked.handled = draft.handled
    sentences = marked.tokens()
    return draft.document(marked.id, marked.text, sentences, pair_types=pair_types, directions=directions)


class MarkedSentences(Reader):
    """A reader whose rows are the pairs of mentions in one sentence."""

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The texts of a file or folder, with what is marked in them."""
        raise NotImplementedError

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
    ) -> Iterator[Instance]:
        """Every pair of mentions in one sentence, with its relation or NA; the source is the text's id.

        `pair_types` and `directions` choose the pairs (see `annotations.candidates`).
        """
        for marked in self.texts(path, relations):
            with self.problems:
                yield from instances(marked, self.problems, pair_types, directions)


class MarkedDocuments(Reader):
    """A reader whose rows are whole texts: mentions with one id are one entity."""

    unit = "documents"

    def texts(self, path: Path, relations: RelationMap | None, id_separator: str) -> Iterator[MarkedText]:
        """The texts of a file or folder; `id_separator` joins the ids of a mention that names several entities."""
        raise NotImplementedError

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
        id_separator: str = "|",
    ) -> Iterator[Document]:
        """The documents of a file or folder; the options are PubTator's."""
        for marked in self.texts(path, relations, id_separator):
            with self.problems:
                yield document(marked, self.problems, pair_types, directions)


def split_ids(column: str, separator: str) -> tuple[str, ...]:
    """The knowledge base's ids that a format writes into one place; none for what says that there is none."""
    parts = column.split(separator) if separator else [column]
    return tuple(part.strip() for part in parts if part.strip() not in _NO_ID)


def _inside(marked: MarkedText, start: int, end: int) -> list[str]:
    """The keys of the mentions in a sentence, from left to right."""
    found = [
        (mention.start, mention.end, key)
        for key, mention in marked.mentions.items()
        if start <= mention.start and mention.end <= end
    ]
    return [key for _, _, key in sorted(found, key=lambda one: one[:2])]


def _within(marked: MarkedText, key: str, offset: int) -> Mention:
    mention = marked.mentions[key]
    identity = mention.ids[0] if mention.ids else f"{marked.id}:{key}"
    return Mention(identity, mention.name, mention.start - offset, mention.end - offset, mention.type)


_NO_ID = ("-1", "-", "")
