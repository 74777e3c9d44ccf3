"""The grammar of the built-in world: frames that turn a relation's phrases, or no relation at all, into sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedrel.data.world_relations import Relation


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


def expressing(relation: Relation) -> Iterator[tuple[Frame, int]]:
    """Every way to state the relation, with the rank of its phrase (0 is the most common)."""
    who = _pronoun(relation.head)
    which = _pronoun(relation.tail)
    for rank, verb in enumerate(relation.verbs):
        yield Frame("active", True, "", f" {verb} "), rank
        yield Frame("relative", True, "", f", {who} {verb} ", ",", True), rank
    for rank, verb in enumerate(relation.inverse):
        yield Frame("passive", False, "", f" {verb} "), rank
        yield Frame("relative", False, "", f", {which} {verb} ", ",", True), rank
    for rank, role in enumerate(relation.role):
        yield Frame("copula", True, "", f" is {role} "), rank
        yield Frame("copula", True, "", f" was {role} "), rank
        yield Frame("apposition", True, "", f", {role} ", ",", True), rank
        yield Frame("fronted", False, f"{role} ", ", ", "", True), rank
        yield Frame("bracket", True, "", f" ({role} ", ")", True), rank
        yield Frame("entry", True, "", f": {role} ", ";", True), rank
    for rank, counter in enumerate(relation.counter):
        noun = counter.removeprefix("the ").removesuffix(" of")
        yield Frame("copula", False, "", f" is {counter} "), rank
        yield Frame("apposition", False, "", f", {counter} ", ",", True), rank
        yield Frame("nominal", True, f"{counter} ", " is "), rank
        yield Frame("nominal", False, "the records give ", f" as {counter} "), rank
        yield Frame("bracket", True, "", f" ({noun}: ", ")", True), rank
        yield Frame("entry", True, "", f"; {noun} ", ";", True), rank
    for rank, part in enumerate(relation.parts):
        yield Frame("participle", True, "", f", {part} ", ",", True), rank
        yield Frame("fronted", False, f"{part} ", ", ", "", True), rank
        yield Frame("entry", True, "", f": {part} ", ";", True), rank


def _pronoun(kind: str) -> str:
    return "who" if kind == "person" else "which"


# Sentences that mention two things and relate them in no way the knowledge base knows.
NEUTRAL: tuple[Frame, ...] = tuple(
    Frame("neutral", head_first, *parts)
    for head_first in (True, False)
    for parts in (
        ("", " and ", "", True),
        ("", ", like ", ",", True),
        ("both ", " and ", "", True),
        ("neither ", " nor ", "", True),
        ("", " as well as ", "", True),
        ("", " was mentioned alongside "),
        ("", " was compared with "),
        ("", " came up in a talk about "),
        ("", " appears on the same page as "),
        ("", " was listed before "),
        ("", " has little to do with "),
        ("a letter about ", " also named "),
        ("a report on ", " and ", "", True),
        ("the chapter on ", " follows the one on "),
        ("the notes on ", " were kept apart from those on "),
        ("some spoke of ", ", others of "),
        ("questions about ", " and ", "", True),
        ("between ", " and ", " there is nothing in common"),
        ("from ", " the talk turned to "),
        ("", " (see also ", ")", True),
        ("", "; ", ";", True),
        ("", ": see ", ";", True),
        ("on ", ", and on ", ", the papers disagree"),
        ("the case of ", " recalled that of "),
    )
)

# Prefix and suffix around a statement that leave it unstated, and those that state it all the same.
DENIALS: tuple[tuple[str, str], ...] = (
    ("it is not true that ", ""),
    ("nobody believed that ", ""),
    ("there is no proof that ", ""),
    ("it was wrongly reported that ", ""),
    ("the claim that ", " was withdrawn"),
    ("the rumour that ", " proved false"),
    ("the court rejected the view that ", ""),
    ("contrary to what some say, it is false that ", ""),
)
DOUBTS: tuple[tuple[str, str], ...] = (
    ("whether ", " is not known"),
    ("it is an open question whether ", ""),
    ("some wonder if ", ""),
    ("it would be odd if ", ""),
    ("a forged letter says that ", ""),
    ("nobody has asked whether ", ""),
    ("if ", ", the records do not show it"),
    ("the report leaves open whether ", ""),
)
ASSERTIONS: tuple[tuple[str, str], ...] = (
    ("it is certain that ", ""),
    ("the records show that ", ""),
    ("everybody knows that ", ""),
    ("the court accepted that ", ""),
    ("the fact that ", " is well known"),
    ("it was rightly reported that ", ""),
    ("there is proof that ", ""),
    ("nobody doubts that ", ""),
)

# What joins a mention to a clause about something else.
LINKS: tuple[str, ...] = (
    " and was often named with ",
    ", as did a visitor who praised ",
    ", a matter that has nothing to do with ",
    ", and spoke well of ",
    ", according to a letter about ",
    " in the same year as the talks on ",
    ", long before anyone had heard of ",
    ", unlike ",
    ", in a list that also has ",
    "; the next entry is on ",
    " and is compared with ",
    ", not far down the page from ",
)
