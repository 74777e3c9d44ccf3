"""The names of entities in running text: whole tokens only, the longest name first, whatever their case."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from fedrel.data.text import Span, tokenise


class Match(NamedTuple):
    """Characters [start, end) of a text, and every entity of that name."""

    start: int
    end: int
    entities: tuple[str, ...]


class Matcher:
    """Finds all names at once by Aho-Corasick, in time that does not depend on how many there are.

    Names and text are lower-cased token by token and each token is framed, so that a name can only match whole
    tokens, any white space between them is as good as another, and places are counted in tokens: characters
    that grow when lower-cased do not shift the offsets.
    """

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        """Take (name, entity) pairs; one name may stand for several entities."""
        from ahocorasick_rs import AhoCorasick, MatchKind

        entities: dict[str, dict[str, None]] = {}
        for name, entity in names:
            entities.setdefault("".join(_framed(name, tokenise(name))), {})[entity] = None
        entities.pop("", None)
        self._entities = [tuple(found) for found in entities.values()]
        self._automaton = AhoCorasick(list(entities), matchkind=MatchKind.LeftmostLongest)

    def find(self, text: str) -> list[Match]:
        """The names in a text, from left to right, none overlapping another; at each place the longest."""
        spans = tokenise(text)
        framed = _framed(text, spans)
        found = self._automaton.find_matches_as_indexes("".join(framed))
        if not found:
            return []
        starts = list(accumulate(map(len, framed), initial=0))
        return [
            Match(
                spans[bisect_left(starts, start)][0],
                spans[bisect_left(starts, end) - 1][1],
                self._entities[number],
            )
            for number, start, end in found
        ]


def _framed(text: str, spans: list[Span]) -> list[str]:
    return [f"\x02{text[start:end].lower()}\x03" for start, end in spans]
