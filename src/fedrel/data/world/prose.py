"""Makes a sentence of the built-in world from a pair, whether to state its relation, a style and a length.

Sentences that state the relation and those that only mention the pair are made of the same parts. The former
may have a clause about other entities; the latter may have the very phrase that states the relation, but
about a third entity, denied, or in doubt.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from fedrel.data.world.catalogue import Relation
from fedrel.data.world.grammar import AND, LIKE, WHILE, Frame, Grammar, frame_tokens, pronoun
from fedrel.data.world.invented_words import KIND_NOUNS, Choices, Entity, Phrase, phrase

MAX_TOKENS = 120
_MARGIN = 15  # how many tokens the last phrase, clause or aside may exceed the length by
# The kinds of sentences that only mention a pair, and how often each is used. `other` states another relation that
# these types can have; only used for pairs in the knowledge base (an NA pair that is related counts as missing).
MENTION_KINDS = {"neutral": 0.40, "list": 0.10, "third": 0.26, "denied": 0.09, "doubted": 0.09, "other": 0.06}
_KIND_NAMES, _KIND_CDF = list(MENTION_KINDS), np.cumsum(list(MENTION_KINDS.values())).tolist()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, and the characters [start, end) of head and tail in it."""

    text: str
    head: tuple[int, int]
    tail: tuple[int, int]


class Author:
    """Makes sentences one after another, with all random choices from one generator."""

    def __init__(self, grammar: Grammar, generator: np.random.Generator) -> None:
        self._grammar = grammar
        self._choices = Choices(generator)
        self._filler = [grammar.filler(style, generator) for style in range(len(grammar.styles))]

    def statement(
        self, head: Entity, tail: Entity, relation: Relation, *, style: int, length: int
    ) -> Sentence:
        """A sentence of about `length` tokens that states the relation of the pair."""
        return self._written(head, tail, *self._statement(relation, style), style, length)

    def mention(
        self, head: Entity, tail: Entity, known: Relation | None, *, style: int, length: int
    ) -> Sentence:
        """A sentence that mentions the pair without stating `known`, its relation in the knowledge base (if any).

        What it says depends on the types of the two and not on `known`, except for the few sentences that
        state another relation than the known one.
        """
        return self._written(head, tail, *self._mention(head, tail, known, style), style, length)

    def _written(
        self, head: Entity, tail: Entity, frame: Frame, tokens: int, style: int, length: int
    ) -> Sentence:
        """The frame with names in it, perhaps a clause about other entities, and filler up to the length."""
        choices = self._choices
        first, second = (head, tail) if frame.head_first else (tail, head)
        name1, name2 = self._name(first), self._name(second)
        before, between, after = frame.before, frame.between, frame.after
        if between.endswith(" ") and choices.chance(0.1):
            between += f"{self._say('adjective', style).text}{choices.pick(KIND_NOUNS[second.type])} "
            tokens += 3
        if frame.needs_verb:
            verb = self._say("verb", style)
            after += verb.text
            tokens += verb.tokens
        tokens += name1.count(" ") + name2.count(" ") + 3  # two names and a full stop
        room = min(length, MAX_TOKENS - _MARGIN) - tokens
        if room > 6 and choices.chance(0.35):
            place = choices.uniform()
            if place < 0.35:
                extra = self._aside_about(first)
                between = _joined(extra.text, between)
            elif place < 0.6:
                extra = self._link_to_another(first.type, style)
                after += extra.text
            elif place < 0.8:
                extra = self._clause_about_others(WHILE, "")
                after += extra.text
            else:
                extra = self._clause_about_others("", AND)
                before = extra.text + before
            room -= extra.tokens
        if room > 0:
            before, between, after = self._filled(before, between, after, room, style)
        return _assembled(before, name1, between, name2, after, frame.head_first)

    def unrelated(self, style: int, length: int, subject: Entity | None = None) -> str:
        """A sentence of about `length` tokens that mentions no pair, but perhaps one entity."""
        opening = self._say("subject", style).text if subject is None else self._name(subject)
        text = self._padded(opening + self._say("verb", style).text, length - 6, style)
        return f"{text[0].upper()}{text[1:]}."

    def _say(self, kind: str, style: int) -> Phrase:
        return next(self._filler[style][kind])

    def _name(self, entity: Entity) -> str:
        names = entity.names
        return names[0] if len(names) == 1 or self._choices.chance(0.6) else self._choices.pick(names[1:])

    def _bystander(self, kind: str) -> str:
        """The name of an entity of this type that the knowledge base does not have."""
        return self._name(self._choices.pick(self._grammar.bystanders[kind]))

    def _statement(self, relation: Relation, style: int) -> tuple[Frame, int]:
        if self._choices.chance(0.08):
            return self._claim(relation, "affirmed", style)
        statements = self._grammar.statements[style][relation.name]
        return self._choices.weighted(statements.frames, statements.cdf)

    def _claim(self, relation: Relation, attitude: str, style: int) -> tuple[Frame, int]:
        claims = self._grammar.claims[style][relation.name]
        frame, _ = self._choices.weighted(claims.frames, claims.cdf)
        opening, closing = self._say(attitude, style).text.split("@")
        wrapped = Frame(
            attitude, frame.head_first, opening + frame.before, frame.between, frame.after + closing
        )
        return wrapped, frame_tokens(wrapped)

    def _mention(self, head: Entity, tail: Entity, known: Relation | None, style: int) -> tuple[Frame, int]:
        kind = self._choices.weighted(_KIND_NAMES, _KIND_CDF)
        possible = self._grammar.by_types[head.type, tail.type]
        if kind in ("denied", "doubted"):
            return self._claim(self._choices.pick(possible), kind, style)
        if kind == "other" and known is not None and len(possible) > 1:
            others = [relation for relation in possible if relation is not known]
            return self._statement(self._choices.pick(others), style)
        if kind == "third":
            frame = self._third(head, tail, style)
        elif kind == "list":
            frame = self._list(head, tail)
        else:
            needs_verb = self._choices.chance(0.4)
            pattern = self._say("neutral subject" if needs_verb else "neutral clause", style).text
            before, between, after = pattern.split("@")
            frame = Frame("neutral", self._choices.chance(0.5), before, between, after, needs_verb)
        return frame, frame_tokens(frame)

    def _list(self, head: Entity, tail: Entity) -> Frame:
        one, two = self._bystander(head.type), self._bystander(tail.type)
        parts = self._choices.pick(
            (
                (f"{one}, ", f", {two} and ", ""),
                ("", f", {one}, {two} and ", ""),
                ("", ", ", f", {one} and {two}"),
                (f"{one} and {two}, ", " and ", ""),
                ("", ", ", f" and {one}"),
            )
        )
        return Frame("list", self._choices.chance(0.5), *parts, needs_verb=True)

    def _third(self, head: Entity, tail: Entity, style: int) -> Frame:
        """A phrase that states a relation, but of one of the pair and a third entity, or of two others."""
        choices, grammar = self._choices, self._grammar
        shape = choices.uniform()
        link = self._say("link", style).text.removesuffix("@")
        if shape < 0.4:
            told = choices.pick(grammar.by_head[head.type])
            return Frame("third", True, "", f" {choices.pick(told.verbs)} {self._bystander(told.tail)}{link}")
        told = choices.pick(grammar.by_tail[tail.type])
        other, verb = self._bystander(told.head), choices.pick(told.verbs)
        if shape < 0.65:
            return Frame("third", False, f"{other} {verb} ", link)
        if shape < 0.9:
            return Frame("third", True, "", f"{self._say('verb', style).text}{WHILE}{other} {verb} ")
        return Frame("third", True, f"{other} {verb} {self._bystander(told.tail)}{link}", " and ")

    def _aside_about(self, entity: Entity) -> Phrase:
        relations = self._grammar.by_head.get(entity.type)
        if relations is None or self._choices.chance(0.2):
            return phrase(f"{LIKE}{self._bystander(entity.type)},")
        told = self._choices.pick(relations)
        return phrase(
            f", {pronoun(entity.type)} {self._choices.pick(told.verbs)} {self._bystander(told.tail)},"
        )

    def _link_to_another(self, kind: str, style: int) -> Phrase:
        link = self._say("link", style)
        name = self._bystander(kind)
        return Phrase(link.text.replace("@", name), link.tokens + name.count(" "))

    def _clause_about_others(self, opening: str, closing: str) -> Phrase:
        told = self._choices.pick(self._grammar.relations)
        verb = self._choices.pick(told.verbs)
        return phrase(f"{opening}{self._bystander(told.head)} {verb} {self._bystander(told.tail)}{closing}")

    def _filled(self, before: str, between: str, after: str, room: int, style: int) -> tuple[str, str, str]:
        """Add filler before, between and after the mentions until the sentence has its length."""
        choices = self._choices
        front = int(room * choices.uniform() * 0.8) if choices.chance(0.5) else 0
        middle = int((room - front) * choices.uniform() * 0.8) if choices.chance(0.35) else 0
        if front >= 10:
            clause = self._say("subject", style).text + self._say("verb", style).text
            before = self._padded(clause, front - 7, style) + AND + before
        elif front >= 2:
            opener = self._say("opener", style)
            before, front = opener.text + before, opener.tokens
        else:
            front = 0
        used = 0
        while used + 3 < middle:
            aside = self._say("aside", style)
            between = _joined(aside.text, between)
            used += aside.tokens
        return before, between, self._padded(after, room - front - used, style)

    def _padded(self, text: str, room: int, style: int) -> str:
        while room > 2:
            more = self._say("tail", style)
            text += more.text
            room -= more.tokens
        return text


def _joined(aside: str, rest: str) -> str:
    """An aside and what follows it, without a second comma between them."""
    return aside.removesuffix(",") + rest if rest[:1] in {",", ";", ":", ")"} else aside + rest


def _assembled(before: str, name1: str, between: str, name2: str, after: str, head_first: bool) -> Sentence:
    start1 = len(before)
    start2 = start1 + len(name1) + len(between)
    one, two = (start1, start1 + len(name1)), (start2, start2 + len(name2))
    text = f"{before}{name1}{between}{name2}{after}."
    text = text[0].upper() + text[1:]
    return Sentence(text, one, two) if head_first else Sentence(text, two, one)


_UNRELATED_LENGTH = 12
_PARAGRAPH_END = 0.2  # chance after each sentence


class DocumentFile(AbstractContextManager["DocumentFile"]):
    """Writes one document in one style, sentence by sentence; a blank line ends a paragraph."""

    def __init__(self, path: Path, grammar: Grammar, style: int, generator: np.random.Generator) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._writer, self._style, self._generator = Author(grammar, generator), style, generator
        self._separator = ""

    def write(self, sentence: str, subject: Entity) -> None:
        """Add a sentence, and up to two others that mention no pair; one of them may mention `subject`."""
        self._put(sentence)
        for chance in self._generator.random(2):
            if chance < 0.6:
                about = subject if chance < 0.2 else None
                self._put(self._writer.unrelated(self._style, _UNRELATED_LENGTH, about))

    def _put(self, sentence: str) -> None:
        self._file.write(self._separator + sentence)
        self._separator = "\n\n" if self._generator.random() < _PARAGRAPH_END else " "

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write("\n")
        self._file.close()
