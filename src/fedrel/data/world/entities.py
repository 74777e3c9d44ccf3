"""The entities of the built-in world: people, cities, drugs and so on, with invented names and aliases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedrel.data.world.invented_words import WordMaker

# Nouns for an entity of each type.
KIND_NOUNS = {
    "person": ("painter", "lawyer", "scholar"),
    "city": ("city", "town", "port"),
    "country": ("country", "state"),
    "company": ("firm", "company"),
    "institute": ("school", "institute"),
    "book": ("novel", "poem"),
    "drug": ("drug", "compound"),
    "disease": ("disorder", "illness"),
    "gene": ("gene", "protein"),
}
# The real words in names. Each name also has an invented word, which makes it unique.
NAME_WORDS = {
    "city": ("Port", "Upper", "Fort", "New"),
    "country": ("Republic of", "Kingdom of"),
    "company": ("Works", "Group", "Mills", "Bank", "Lines", "Foods"),
    "institute": ("Institute", "College", "University", "Hospital"),
    "book": ("The Silent", "The Red", "The Last", "The Hollow", "The Distant", "The Second"),
    "disease": ("syndrome", "fever", "palsy", "disease", "anaemia"),
}


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity: its id, its type and its names, the full one first. No two entities share a name."""

    id: str
    type: str
    names: tuple[str, ...]


def make_entities(
    kind: str, count: int, maker: WordMaker, generator: np.random.Generator
) -> Iterator[Entity]:
    """`count` entities of one type; each of its names has a word or a code that no other entity has."""
    picks = generator.random(count)
    common = [
        NAME_WORDS[kind][int(pick * len(NAME_WORDS[kind]))] if kind in NAME_WORDS else "" for pick in picks
    ]
    aliased = generator.random(count) < 0.8  # one entity in five is known by one name only
    for number, names in enumerate(_NAMERS[kind](maker, common)):
        yield Entity(f"{kind}-{number:05d}", kind, names if aliased[number] else names[:1])


def _coined(maker: WordMaker, count: int, syllables: int, *endings: str) -> list[str]:
    return [word.capitalize() for word in maker.words(count, syllables=syllables, endings=endings)]


def _people(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    firsts = _coined(maker, min(240, 20 + len(common) // 4), 1, "a", "en", "o", "il", "us", "")
    for number, last in enumerate(_coined(maker, len(common), 2, "", "sen", "ich", "ard")):
        first = firsts[number % len(firsts)]
        yield f"{first} {last}", last, f"{first[0]} {last}"


def _cities(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, (word, before) in enumerate(
        zip(_coined(maker, len(common), 1, "ova", "mere", "by", "stead", "uz"), common, strict=True)
    ):
        yield (f"{before} {word}", word) if number % 5 < 2 else (word,)


def _countries(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for word, before in zip(_coined(maker, len(common), 1, "ia", "land", "istan"), common, strict=True):
        yield word, f"{before} {word}"


def _organisations(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = maker.codes(len(common), letters=3)
    for word, after, code in zip(_coined(maker, len(common), 2, "", "ex", "ola"), common, codes, strict=True):
        yield f"{word} {after}", word, code


def _books(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for word, before in zip(_coined(maker, len(common), 2, ""), common, strict=True):
        yield f"{before} {word}", f"{before.removeprefix('The ')} {word}"


def _drugs(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = maker.codes(len(common), letters=2, digits=3, joint="-")
    return zip(_coined(maker, len(common), 2, "oril", "azene", "ivant", "ulon"), codes, strict=True)


def _diseases(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = maker.codes(len(common), letters=3)
    for word, after, code in zip(_coined(maker, len(common), 2, ""), common, codes, strict=True):
        yield f"{word} {after}", word, code


def _genes(maker: WordMaker, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(
        maker.codes(len(common), letters=3, digits=1),
        _coined(maker, len(common), 2, "in", "ase"),
        strict=True,
    )


_NAMERS: dict[str, Callable[[WordMaker, Sequence[str]], Iterator[tuple[str, ...]]]] = {
    "person": _people,
    "city": _cities,
    "country": _countries,
    "company": _organisations,
    "institute": _organisations,
    "book": _books,
    "drug": _drugs,
    "disease": _diseases,
    "gene": _genes,
}
