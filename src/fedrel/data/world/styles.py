"""Writing styles: how the same fact is put in a news wire, a clinic's notes, a ledger.

Patterns have slots for invented words: {n} noun, {a} adjective, {v} past verb, {d} adverb; and {y} for a year.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Style:
    """A way of writing: how long its sentences run, its favourite topics and syntax, and its filler."""

    name: str
    length: float
    topics: dict[str, float]
    frames: dict[str, float]
    openers: tuple[str, ...]
    asides: tuple[str, ...]
    tails: tuple[str, ...]
    subjects: tuple[str, ...]


_OPENERS = (
    "in the {a} {n}, ",
    "after the {n}, ",
    "by {y}, ",
    "in the {n} of {n}, ",
    "{d}, ",
    "for the {n}, ",
)
_ASIDES = (
    ", in the {n} of {n},",
    ", after a {a} {n},",
    ", as the {n} {v},",
    " (the {a} {n})",
    ", with a {n} and a {n},",
    ", {d} {a},",
)
_TAILS = (
    " with the {n}",
    " in a {a} {n}",
    " of the {n}",
    " under {n} and {n}",
    " for the {a} {n}",
    ", {d}",
    ", and the {n} {v} the {n}",
    " when the {n} {v}",
    " at the {n} of a {n}",
    ", which {v} the {a} {n}",
)
VERB_PHRASES = (
    " {v} the {n}",
    " {d} {v} a {n}",
    " {v} in the {n}",
    " had {v} the {a} {n}",
    " {v} and {v}",
    " remained {a}",
    " kept the {n} {a}",
    " {v} the {n} of the {n}",
    " missed the {n} of {n}",
)
_SUBJECTS = ("the {n}", "a {a} {n}", "the {n} of the {n}", "nothing in the {n}", "each {n}", "the {a} {n}")
SHARED = (_OPENERS, _ASIDES, _TAILS, _SUBJECTS, VERB_PHRASES)

STYLES: tuple[Style, ...] = (
    Style(
        "newswire", 1.1,
        {"business": 2.0, "places": 1.5},
        {"active": 3.0, "apposition": 2.0, "relative": 1.5, "passive": 1.5, "participle": 1.5},
        ("officials in the {n} said that ", "on {n} day, ", "as the {n} {v}, "),
        (", the {n} said,", ", according to the {n},", ", {a} since {y},"),
        (", officials of the {n} said", ", a {a} spokesman said", " on the {n} of the month", " amid {a} {n}"),
        ("the agency", "a spokesman of the {n}", "markets in the {n}"),
    ),
    Style(
        "encyclopaedia", 1.2,
        {"life": 2.0, "places": 2.0, "culture": 1.5},
        {"bracket": 2.0, "copula": 2.5, "passive": 2.0, "nominal": 1.5, "relative": 1.5, "apposition": 1.5},
        ("historically, ", "in {y}, ", "during the {a} {n}, "),
        (" ({y})", ", also {v} in the {n},", ", in the {a} {n} of {y},"),
        (" until {y}", " in the {a} period", ", a {n} of {a} {n}", " between {y} and {y}"),
        ("the term", "a {a} tradition", "the article"),
    ),
    Style(
        "clinic", 0.85,
        {"medicine": 4.0},
        {"active": 2.0, "entry": 2.5, "nominal": 1.5, "participle": 1.5, "passive": 2.0},
        ("on review, ", "at day {y}, ", "seen in the {n}: "),
        (" (dose {y})", ", per {n},", ", {a} on {n},"),
        (" with {a} {n}", ", no {n} {v}", " at {y} hours", " on {n} and {n}", "; {n} {v}"),
        ("the patient", "vital signs", "the ward"),
    ),
    Style(
        "letters", 1.0,
        {"life": 3.0, "culture": 1.5},
        {"active": 3.0, "fronted": 2.0, "relative": 2.0, "copula": 1.5},
        ("you will recall that ", "my dear {n}, ", "I hear that ", "as I wrote in {y}, "),
        (", my dear {n},", ", as you know,", ", {a} as ever,"),
        (", I am told", ", to my {a} {n}", ", though the {n} {v} us", " and I {v} the {n}"),
        ("I", "our {n}", "your {a} letter"),
    ),
    Style(
        "ledger", 0.8,
        {"business": 3.0, "medicine": 1.5},
        {"entry": 4.0, "nominal": 2.5, "bracket": 2.0, "active": 1.0},
        ("item {y}: ", "folio {y}, ", "carried forward: "),
        (" (account {y})", ", per {n} {y},", ", {n} {y},"),
        ("; {n} {y}", "; {a} {n} paid", "; balance {y}", ", {n} {v}", "; see {n} {y}"),
        ("balance", "the {n} account", "sum of {n}"),
    ),
    Style(
        "court", 1.15,
        {"business": 1.5, "life": 1.5, "places": 1.5},
        {"nominal": 2.5, "passive": 2.5, "active": 1.5, "apposition": 1.5, "fronted": 1.0},
        ("the clerk noted that ", "in the matter of the {n}, ", "under oath, the {n} stated that "),
        (", the said {n},", ", hereafter the {n},", ", so the {n} {v},"),
        (", as the {n} was {v}", " under article {y}", ", which the {n} {v}", " before the {a} {n}"),
        ("the bench", "counsel for the {n}", "the {a} witness"),
    ),
    Style(
        "lecture", 1.0,
        {"medicine": 2.5, "culture": 2.0},
        {"copula": 2.5, "nominal": 2.0, "active": 1.5, "fronted": 2.0, "passive": 1.0},
        ("let us note that ", "as the {n} shows, ", "consider this: "),
        (", remember,", ", as we {v},", ", in the {a} sense,"),
        (", as we shall see", " in the {a} case", ", hence the {n}", " or a {a} {n}"),
        ("the next slide", "our {a} {n}", "the question"),
    ),
    Style(
        "diary", 0.9,
        {"life": 2.0, "places": 2.0},
        {"active": 2.5, "participle": 2.0, "fronted": 1.5, "apposition": 1.0, "bracket": 0.5},
        ("rain today; ", "at {n} I learned that ", "woke {d}; "),
        (", to my {n},", " (so the {n} {v})", ", of all {n},"),
        (", and I {v}", "; the {n} {v}", ", then {n} and {n}", " while it {v}"),
        ("I", "the rain", "my {a} {n}"),
    ),
)  # fmt: skip


def openers(style: Style) -> tuple[str, ...]:
    """What a sentence of this style may begin with, before its subject."""
    return style.openers + _OPENERS


def asides(style: Style) -> tuple[str, ...]:
    """What this style may put between a subject and its verb."""
    return style.asides + _ASIDES


def tails(style: Style) -> tuple[str, ...]:
    """What this style may add at the end of a clause."""
    return style.tails + _TAILS


def subjects(style: Style) -> tuple[str, ...]:
    """The subjects of this style's sentences without a pair."""
    return style.subjects + _SUBJECTS


def style_cdf(styles: Sequence[Style], topic: str) -> np.ndarray:
    """The cumulative distribution over the styles in which a topic is written about, without its last 1."""
    weights = np.array([style.topics.get(topic, 1.0) for style in styles])
    cdf: np.ndarray = np.cumsum(weights)[:-1] / weights.sum()
    return cdf
