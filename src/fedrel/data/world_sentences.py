"""Sentences of the built-in world: a pair, whether its relation is to be stated, a style, a length; out comes text.

Statements and mere mentions are made of the same stuff. A statement may carry a clause about somebody else; a mere
mention may carry the very phrase that would state the relation, but about a third party, denied, or in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrel.data.world_entities import KIND_NOUNS, Entity
from fedrel.data.world_filler import Dice, Phrase, Vocabulary, phrase, phrases
from fedrel.data.world_frames import ASSERTIONS, DENIALS, DOUBTS, LINKS, NEUTRAL, Frame, expressing
from fedrel.data.world_relations import Relation
from fedrel.data.world_styles import FRAME_KINDS, VERB_PHRASES, Style, asides, openers, subjects, tails
from fedrel.seeding import numpy_generator

MAX_TOKENS = 120
# How a mention that states nothing comes about, and how often. `other`: the sentence states another relation that
# these types can have; only said of pairs in the knowledge base (an NA pair that is related is `missing`).
MENTION_KINDS = {"neutral": 0.38, "list": 0.12, "third": 0.26, "denied": 0.09, "doubted": 0.09, "other": 0.06}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text and where in it the pair stands, as written."""

    text: str
    head: tuple[int, int]
    tail: tuple[int, int]


class Grammar:
    """What does not depend on the sentence: every style's ways to state every relation, and its favourite words."""

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
        self.statements = [
            {r.name: self._statements(r, style, numpy_generator(seed, "habits", style.name, r.name)) for r in relations}
            for style in styles
        ]
        self.vocabularies = [
            vocabulary.reordered(numpy_generator(seed, "favourites", style.name)) for style in styles
        ]
        self.neutral_tokens = {frame: _frame_tokens(frame) for frame in NEUTRAL}

    @staticmethod
    def _statements(
        relation: Relation, style: Style, generator: np.random.Generator
    ) -> tuple[list[tuple[Frame, int]], list[float]]:
        """The frames this style uses for the relation; rarer phrases are unknown to some styles."""
        frames, weights = [], []
        known: dict[tuple[str, int], float] = {}
        for frame, rank in expressing(relation):
            side = frame.kind in ("copula", "apposition", "bracket", "entry") and not frame.head_first
            key = (f"{frame.kind}/{side}", rank)
            if key not in known:
                dropped = rank >= 2 and generator.random() < 0.4
                known[key] = 0.0 if dropped else (1 + rank) ** -0.8 * generator.lognormal(0.0, 0.5)
            liking = style.frames.get(frame.kind, 0.3)
            if known[key] > 0:
                frames.append((frame, _frame_tokens(frame)))
                weights.append(known[key] * liking)
        cdf = np.cumsum(weights) / np.sum(weights)
        return frames, cdf.tolist()


def _frame_tokens(frame: Frame) -> int:
    return phrase(f"{frame.before} {frame.between} {frame.after}").tokens


class Writer:
    """Writes sentences, one after another, from one generator: the same generator, the same sentences."""

    def __init__(self, grammar: Grammar, generator: np.random.Generator) -> None:
        self._grammar = grammar
        self._dice = Dice(generator)
        self._mention_kinds = list(MENTION_KINDS)
        self._mention_cdf = np.cumsum(list(MENTION_KINDS.values())).tolist()
        self._filler = [
            {
                "opener": phrases(openers(style), vocabulary, generator),
                "aside": phrases(asides(style), vocabulary, generator),
                "tail": phrases(tails(style), vocabulary, generator),
                "verb": phrases(VERB_PHRASES, vocabulary, generator),
                "subject": phrases(subjects(style), vocabulary, generator),
                "adjective": phrases(("the {a} ",), vocabulary, generator),
            }
            for style, vocabulary in zip(grammar.styles, grammar.vocabularies, strict=True)
        ]

    def sentence(
        self, head: Entity, tail: Entity, relation: Relation, *, states: bool, in_kb: bool, style: int, length: int
    ) -> Sentence:
        """A sentence of about `length` tokens that states the relation of the pair, or only mentions the pair."""
        dice = self._dice
        frame, tokens = self._statement(relation, style) if states else self._mention(head, tail, relation, in_kb, style)
        if states and dice.chance(0.08):
            frame, tokens = _wrapped(frame, dice.pick(ASSERTIONS))
        first, second = (head, tail) if frame.head_first else (tail, head)
        name1, name2 = self._name(first), self._name(second)
        before, between, after = frame.before, frame.between, frame.after
        tokens += name1.count(" ") + name2.count(" ") + 3  # the names and the full stop
        if frame.needs_verb:
            verb = next(self._filler[style]["verb"])
            after += verb.text
            tokens += verb.tokens
        if between.endswith(" ") and dice.chance(0.1):
            adjective = next(self._filler[style]["adjective"]).text
            between += f"{adjective}{dice.pick(KIND_NOUNS[second.type])} "
            tokens += 3
        room = min(length, MAX_TOKENS - 10) - tokens
        if room > 6 and dice.chance(0.3):
            place = dice.uniform()
            if place < 0.4:
                extra = self._aside_about(first)
                between = extra.text + between
            elif place < 0.75:
                extra = self._clause_about_others(", while ", "")
                after += extra.text
            else:
                extra = self._clause_about_others("", ", and ")
                before = extra.text + before
            room -= extra.tokens
        if room > 0:
            before, between, after = self._fill(before, between, after, room, style)
        return _assemble(before, name1, between, name2, after, frame.head_first)

    def chatter(self, style: int, length: int, names: Sequence[str] = ()) -> str:
        """A sentence that mentions no pair; `names` may hold one name to bring up."""
        filler = self._filler[style]
        text = names[0] if names else next(filler["subject"]).text
        text += next(filler["verb"]).text
        text = self._padded(text, length - 6, style)
        return f"{text[0].upper()}{text[1:]}."

    def _statement(self, relation: Relation, style: int) -> tuple[Frame, int]:
        frames, cdf = self._grammar.statements[style][relation.name]
        return self._dice.weighted(frames, cdf)

    def _mention(self, head: Entity, tail: Entity, relation: Relation, in_kb: bool, style: int) -> tuple[Frame, int]:
        dice = self._dice
        kind = dice.weighted(self._mention_kinds, self._mention_cdf)
        if kind == "other":
            others = [r for r in self._grammar.by_types[head.type, tail.type] if r is not relation]
            if in_kb and others:
                return self._statement(dice.pick(others), style)
            kind = "neutral"
        if kind == "neutral":
            frame = dice.pick(NEUTRAL)
            return frame, self._grammar.neutral_tokens[frame]
        if kind in ("denied", "doubted"):
            return _wrapped(self._statement(relation, style)[0], dice.pick(DENIALS if kind == "denied" else DOUBTS))
        frame = self._list(head, tail) if kind == "list" else self._third(head, tail, relation)
        return frame, _frame_tokens(frame)

    def _list(self, head: Entity, tail: Entity) -> Frame:
        dice = self._dice
        one, two = self._bystander(head.type), self._bystander(tail.type)
        forms = (
            (f"{one}, ", f", {two} and ", ""),
            ("", f", {one}, {two} and ", ""),
            ("the list has ", ", ", f", {one} and {two}"),
            (f"{one} and {two}, ", " and ", ""),
            ("", ", ", f" and {one}"),
        )
        form = dice.pick(forms)
        return Frame("list", dice.chance(0.5), *form, not form[0].startswith("the list"))

    def _third(self, head: Entity, tail: Entity, relation: Relation) -> Frame:
        """A phrase of a relation, but between one of the pair and a third entity, or between two others."""
        dice, grammar = self._dice, self._grammar
        same = dice.chance(0.4)
        link = dice.pick(LINKS)
        shape = dice.uniform()
        if shape < 0.35:
            told = relation if same else dice.pick(grammar.by_head[head.type])
            return Frame("third", True, "", f" {dice.pick(told.verbs)} {self._bystander(told.tail)}{link}")
        told = relation if same else dice.pick(grammar.by_tail[tail.type])
        other = self._bystander(told.head)
        verb = dice.pick(told.verbs)
        if shape < 0.6:
            return Frame("third", False, f"{other} {verb} ", link)
        if shape < 0.85:
            return Frame("third", True, "", f" was named, while {other} {verb} ")
        return Frame("third", True, f"{other} {verb} {self._bystander(told.tail)}{link}", " and ")

    def _aside_about(self, entity: Entity) -> Phrase:
        relations = self._grammar.by_head.get(entity.type)
        if relations is None:
            return phrase(f", like {self._bystander(entity.type)},")
        told = self._dice.pick(relations)
        who = "who" if entity.type == "person" else "which"
        return phrase(f", {who} {self._dice.pick(told.verbs)} {self._bystander(told.tail)},")

    def _clause_about_others(self, opening: str, closing: str) -> Phrase:
        told = self._dice.pick(self._grammar.relations)
        verb = self._dice.pick(told.verbs)
        return phrase(f"{opening}{self._bystander(told.head)} {verb} {self._bystander(told.tail)}{closing}")

    def _fill(self, before: str, between: str, after: str, room: int, style: int) -> tuple[str, str, str]:
        """Pour filler before, between and behind until the sentence has its length."""
        dice, filler = self._dice, self._filler[style]
        front = int(room * dice.uniform() * 0.8) if dice.chance(0.5) else 0
        middle = int(room * dice.uniform() * 0.6) if dice.chance(0.35) else 0
        if front >= 10:
            clause = next(filler["subject"]).text + next(filler["verb"]).text
            before = f"{self._padded(clause, front - 7, style)}, and {before}"
        elif front >= 2:
            opener = next(filler["opener"])
            before = opener.text + before
            front = opener.tokens
        else:
            front = 0
        used = 0
        while used + 3 < middle:
            aside = next(filler["aside"])
            between = aside.text.removesuffix(",") + between if between[:1] in ",;:" else aside.text + between
            used += aside.tokens
        return before, between, self._padded(after, room - front - used, style)

    def _padded(self, text: str, room: int, style: int) -> str:
        tails_of_style = self._filler[style]["tail"]
        while room > 1:
            more = next(tails_of_style)
            text += more.text
            room -= more.tokens
        return text

    def _name(self, entity: Entity) -> str:
        names = entity.names
        return names[0] if len(names) == 1 or self._dice.chance(0.6) else self._dice.pick(names[1:])

    def _bystander(self, kind: str) -> str:
        return self._name(self._dice.pick(self._grammar.bystanders[kind]))


def _wrapped(frame: Frame, around: tuple[str, str]) -> tuple[Frame, int]:
    opening, closing = around
    # A frame without a verb gets it from the filler, which would then stand behind the closing words.
    after = frame.after if frame.needs_verb else frame.after + closing
    wrapped = Frame(frame.kind, frame.head_first, opening + frame.before, frame.between, after, frame.needs_verb)
    return wrapped, _frame_tokens(wrapped)


def _assemble(before: str, name1: str, between: str, name2: str, after: str, head_first: bool) -> Sentence:
    start2 = len(before) + len(name1) + len(between)
    span1, span2 = (len(before), len(before) + len(name1)), (start2, start2 + len(name2))
    text = f"{before}{name1}{between}{name2}{after}."
    text = text[0].upper() + text[1:]
    return Sentence(text, span1, span2) if head_first else Sentence(text, span2, span1)
