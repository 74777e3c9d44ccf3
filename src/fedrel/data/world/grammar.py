"""What all sentences of one world share: each style's ways to state each relation, and its favourite words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from fedrel.data.world.catalogue import RELATIONS, Relation
from fedrel.data.world.entities import KIND_NOUNS, NAME_WORDS, Entity
from fedrel.data.world.filler import Phrase, Vocabulary, phrase, phrases
from fedrel.data.world.frames import (
    ASSERTIONS,
    DENIALS,
    DOUBTS,
    LINKS,
    NEUTRAL_CLAUSES,
    NEUTRAL_SUBJECTS,
    PATTERNS,
    Frame,
    expressing,
)
from fedrel.data.world.styles import SHARED, STYLES, VERB_PHRASES, Style, asides, openers, subjects, tails
from fedrel.seeding import numpy_generator

_RARE_RANK, _UNKNOWN = 2, 0.4  # phrases from this rank on are unknown to a style with this probability
_DISLIKED = 0.3  # weight of a syntax that a style does not name among those it likes


@dataclass(frozen=True, slots=True)
class Statements:
    """Frames with their token counts (names not counted), and the cumulative distribution over them."""

    frames: list[tuple[Frame, int]]
    cdf: list[float]


class Grammar:
    """The ways of writing of a world. Costs a second to make; `Writer`s share one."""

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
        self.claims: list[
            dict[str, Statements]
        ] = []  # those whose main verb makes the statement: one can deny them
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
        """Streams of everything a style says without saying anything."""
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
    """The frames this style uses for the relation, weighted; each style has its own taste in phrases."""
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
