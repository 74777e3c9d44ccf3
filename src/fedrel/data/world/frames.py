"""The grammar of the built-in world: frames that turn a relation's phrases, or no relation at all, into sentences.

Patterns are written with `@` where a mention (or, in the wrappers, a clause) stands, and with the slots of
`styles` for invented words, so that the words of a mere mention are as open a class as those of a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedrel.data.world.catalogue import Relation


@dataclass(frozen=True, slots=True)
class Frame:
    """The skeleton `before E1 between E2 after`, where E1 is the head if `head_first`, else the tail.

    `kind` names the syntax, by which styles differ. `needs_verb`: what stands is not yet a sentence.
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


# Two mentions that nothing in the knowledge base relates: as a whole clause, or as a subject that wants a verb.
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

# What joins a statement to a mention that it does not concern.
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
