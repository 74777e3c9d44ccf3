"""How sentences of the built-in world are made: frames that state a relation or none, and how styles use them.

Patterns have `@` where a mention (or, around a claim, a clause) goes, and the slots of `styles` for invented
words, so that a sentence that only mentions a pair has as many different words as one that states a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from fedrel.data.world.catalogue import RELATIONS, Relation
from fedrel.data.world.invented_words import (
    KIND_NOUNS,
    NAME_WORDS,
    Entity,
    Phrase,
    Vocabulary,
    phrase,
    phrases,
)
from fedrel.data.world.styles import SHARED, STYLES, VERB_PHRASES, Style, asides, openers, subjects, tails
from fedrel.seeding import numpy_generator

_RARE_RANK, _UNKNOWN = 2, 0.4  # phrases from this rank on are unknown to a style with this probability
_DISLIKED = 0.3  # weight of a syntax that a style does not name among those it likes

# Two mentions without a relation of the knowledge base: as a whole clause, or as a subject that needs a verb.
NEUTRAL_CLAUSES: tuple[str, ...] = (
    "@ {v} the {n} of @",
    "@ {v} @",
    "@ {d} {v} the {a} {n} near @",
    "@ was {v} by @",
    "@ {v} a {n} from @",
    "@ had a {n} with @",
    "@ is a {n} of @",
    "@ was the {a} {n} of @",
    "@ {v} in @",
    "@ {v} for @",
    "@ was mentioned alongside @",
    "@ was compared with @",
    "@ came up in a talk about @",
    "@ appears on the same page as @",
    "@ has little to do with @",
    "a {n} about @ also named @",
    "the {n} on @ follows the one on @",
    "some spoke of @, others of @",
    "between @ and @ there is no {n}",
    "from @ the talk turned to @",
    "on @, and on @, the papers disagree",
    "the case of @ recalled that of @",
    "the {n} of @ is not the {n} of @",
    "the {n} that {v} @ also {v} @",
)
NEUTRAL_SUBJECTS: tuple[str, ...] = (
    "@ and @",
    "@, like @,",
    "both @ and @",
    "neither @ nor @",
    "@ as well as @",
    "a {n} on @ and @",
    "the {a} {n} of @ and @",
    "@, {v} with @,",
    "@, the {n} of @,",
    "@, a {a} {n} of @,",
    "{v} in @, @",
    "@ (see also @)",
    "@ ({n}: @)",
    "@: {n} of @;",
    "@; {n} @;",
    "@, which {v} @,",
)

# What joins a statement to a mention that it is not about.
LINKS: tuple[str, ...] = (
    " and was often named with @",
    ", as did the {n} who praised @",
    ", a {n} that has nothing to do with @",
    ", and {v} @",
    ", according to a {n} about @",
    " in the same {n} as @",
    ", long before the {n} of @",
    ", unlike @",
    ", like @",
    ", in a list that also has @",
    "; the next {n} is on @",
    " and is compared with @",
    ", to the {n} of @",
    " with the {n} of @",
    ", which {d} {v} @",
    " under the {a} {n} of @",
)

# What leaves a claim open or denies it, and what affirms it.
DENIALS: tuple[str, ...] = (
    "it is not true that @",
    "nobody believed that @",
    "there is no {n} that @",
    "it was wrongly {v} that @",
    "the claim that @ was withdrawn",
    "the rumour that @ proved false",
    "the {n} rejected the view that @",
    "contrary to the {n}, it is false that @",
    "the {a} {n} denied that @",
)
DOUBTS: tuple[str, ...] = (
    "whether @ is not known",
    "it is an open question whether @",
    "some wonder if @",
    "it would be {a} if @",
    "a forged {n} says that @",
    "the {n} has not asked whether @",
    "if @, the {n} does not show it",
    "the {n} leaves open whether @",
    "it may or may not be that @",
)
ASSERTIONS: tuple[str, ...] = (
    "it is certain that @",
    "the {n} shows that @",
    "everybody knows that @",
    "the {n} accepted that @",
    "the fact that @ is well known",
    "it was rightly {v} that @",
    "there is no doubt that @",
    "nobody doubts that @",
    "the {a} {n} says that @",
)

WHILE, AND, LIKE = ", while ", ", and ", ", like "
PATTERNS = (
    *NEUTRAL_CLAUSES,
    *NEUTRAL_SUBJECTS,
    *LINKS,
    *DENIALS,
    *DOUBTS,
    *ASSERTIONS,
    WHILE,
    LIKE,
    "who which listed as",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The skeleton `before E1 between E2 after`, where E1 is the head if `head_first`, else the tail.

    `kind` names the syntax, by which styles differ. With `needs_verb`, it is not yet a sentence.
    """

    kind: str
    head_first: bool
    before: str
    between: str
    after: str = ""
    needs_verb: bool = False


def expressing(relation: Relation) -> Iterator[tuple[Frame, str, int]]:
    """Every way to state the relation, with the phrase it uses and that phrase's rank (0 is the most common)."""
    who, which = pronoun(relation.head), pronoun(relation.tail)
    for rank, verb in enumerate(relation.verbs):
        yield Frame("active", True, "", f" {verb} "), verb, rank
        yield Frame("relative", True, "", f", {who} {verb} ", ",", True), verb, rank
    for rank, verb in enumerate(relation.inverse):
        yield Frame("passive", False, "", f" {verb} "), verb, rank
        yield Frame("relative", False, "", f", {which} {verb} ", ",", True), verb, rank
    for rank, role in enumerate(relation.role):
        yield Frame("copula", True, "", f" is {role} "), role, rank
        yield Frame("copula", True, "", f" was {role} "), role, rank
        yield Frame("apposition", True, "", f", {role} ", ",", True), role, rank
        yield Frame("fronted", False, f"{role} ", ", ", "", True), role, rank
        yield Frame("bracket", True, "", f" ({role} ", ")", True), role, rank
        yield Frame("entry", True, "", f": {role} ", ";", True), role, rank
    for rank, counter in enumerate(relation.counter):
        noun = counter.removeprefix("the ").removesuffix(" of")
        yield Frame("copula", False, "", f" is {counter} "), counter, rank
        yield Frame("apposition", False, "", f", {counter} ", ",", True), counter, rank
        yield Frame("nominal", True, f"{counter} ", " is "), counter, rank
        yield Frame("nominal", False, "", f" is listed as {counter} "), counter, rank
        yield Frame("bracket", True, "", f" ({noun}: ", ")", True), counter, rank
        yield Frame("entry", True, "", f"; {noun} ", ";", True), counter, rank
    for rank, part in enumerate(relation.parts):
        yield Frame("participle", True, "", f", {part} ", ",", True), part, rank
        yield Frame("fronted", False, f"{part} ", ", ", "", True), part, rank
        yield Frame("entry", True, "", f": {part} ", ";", True), part, rank


def pronoun(kind: str) -> str:
    """What a relative clause about an entity of this type begins with."""
    return "who" if kind == "person" else "which"


@dataclass(frozen=True, slots=True)
class Statements:
    """Frames with their token counts (names not counted), and the cumulative distribution over them."""

    frames: list[tuple[Frame, int]]
    cdf: list[float]


class Grammar:
    """Each style's ways to state each relation, and its filler. Takes a second to make; authors share one."""

    def __init__(
        self,
        relations: Sequence[Relation],
        styles: Sequence[Style],
        vocabulary: Vocabulary,
        bystanders: dict[str, list[Entity]],
        seed: int,
    ) -> None:
        self.relations, self.styles, self.bystanders = relations, styles, bystanders
        self.by_head: dict[str, list[Relation]] = {}
        self.by_tail: dict[str, list[Relation]] = {}
        self.by_types: dict[tuple[str, str], list[Relation]] = {}
        for relation in relations:
            self.by_head.setdefault(relation.head, []).append(relation)
            self.by_tail.setdefault(relation.tail, []).append(relation)
            self.by_types.setdefault((relation.head, relation.tail), []).append(relation)
        self.statements: list[dict[str, Statements]] = []
        self.claims: list[dict[str, Statements]] = []  # the statements in a main clause, which can be denied
        for style in styles:
            habits = {
                r.name: _habits(r, style, numpy_generator(seed, "habits", style.name, r.name))
                for r in relations
            }
            self.statements.append({name: _statements(habit) for name, habit in habits.items()})
            self.claims.append(
                {
                    name: _statements([h for h in habit if not h[0].needs_verb])
                    for name, habit in habits.items()
                }
            )
        self._vocabularies = [
            vocabulary.reordered(numpy_generator(seed, "favourites", s.name)) for s in styles
        ]

    def filler(self, style: int, generator: np.random.Generator) -> dict[str, Iterator[Phrase]]:
        """Endless streams of a style's phrases that state no relation, by their kind."""
        patterns = {
            "opener": openers(self.styles[style]),
            "aside": asides(self.styles[style]),
            "tail": tails(self.styles[style]),
            "subject": subjects(self.styles[style]),
            "verb": VERB_PHRASES,
            "adjective": ("the {a} ",),
            "neutral clause": NEUTRAL_CLAUSES,
            "neutral subject": NEUTRAL_SUBJECTS,
            "link": LINKS,
            "denied": DENIALS,
            "doubted": DOUBTS,
            "affirmed": ASSERTIONS,
        }
        return {
            kind: phrases(texts, self._vocabularies[style], generator) for kind, texts in patterns.items()
        }


def real_words() -> set[str]:
    """Every word of the templates, lower-cased: no invented word may be one of them."""
    return set(_words_in((RELATIONS, STYLES, SHARED, PATTERNS, KIND_NOUNS, NAME_WORDS)))


def _words_in(thing: object) -> Iterator[str]:
    if isinstance(thing, str):
        yield from re.findall(r"[a-z]+", thing.lower())
    elif isinstance(thing, dict):
        yield from _words_in(tuple(thing.values()))
    elif isinstance(thing, tuple):
        for part in thing:
            yield from _words_in(part)
    elif is_dataclass(thing):
        yield from _words_in(tuple(getattr(thing, field.name) for field in fields(thing)))


def _habits(relation: Relation, style: Style, generator: np.random.Generator) -> list[tuple[Frame, float]]:
    """The frames this style uses for the relation, with random weights: each style prefers other phrases."""
    liking: dict[str, float] = {}
    frames = []
    for frame, words, rank in expressing(relation):
        if words not in liking:
            unknown = generator.random() < _UNKNOWN and rank >= _RARE_RANK
            liking[words] = 0.0 if unknown else (1 + rank) ** -0.8 * generator.lognormal(0.0, 0.5)
        if liking[words] > 0:
            frames.append((frame, liking[words] * style.frames.get(frame.kind, _DISLIKED)))
    return frames


def _statements(weighted: Sequence[tuple[Frame, float]]) -> Statements:
    counted = [(frame, frame_tokens(frame)) for frame, _ in weighted]
    weights = np.cumsum([weight for _, weight in weighted])
    return Statements(counted, (weights / weights[-1]).tolist())


def frame_tokens(frame: Frame) -> int:
    """The tokens of a frame without its mentions."""
    return phrase(f"{frame.before} {frame.between} {frame.after}").tokens
