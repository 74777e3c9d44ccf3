"""The inhabitants of the built-in world: typed entities with invented names and aliases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedrel.data.world_words import WordMint

TYPES = ("person", "city", "country", "company", "institute", "book", "drug", "disease", "gene")
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


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity: its id, its type and its names, the full one first. No two entities share a name."""

    id: str
    type: str
    names: tuple[str, ...]


def make_entities(kind: str, count: int, mint: WordMint, generator: np.random.Generator) -> Iterator[Entity]:
    """`count` entities of one type; each has a word or a code of its own in every one of its names."""
    picks = generator.random((count, 3))
    for number, (names, pick) in enumerate(zip(_NAMERS[kind](count, mint, picks), picks, strict=True)):
        # One entity in five is known by its full name only.
        yield Entity(f"{kind}-{number:05d}", kind, names if pick[2] < 0.8 else names[:1])


def _choose(options: tuple[str, ...] | list[str], pick: float) -> str:
    return options[int(pick * len(options))]


def _titled(mint: WordMint, count: int, syllables: int, endings: tuple[str, ...]) -> list[str]:
    return [word.capitalize() for word in mint.words(count, syllables=syllables, endings=endings)]


def _people(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    firsts = _titled(mint, min(240, 20 + count // 4), 1, ("a", "en", "o", "il", "us"))
    for last, pick in zip(_titled(mint, count, 2, ("", "sen", "ich", "ard")), picks, strict=True):
        first = _choose(firsts, pick[0])
        yield f"{first} {last}", last, f"{first[0]} {last}"


def _cities(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    for word, pick in zip(_titled(mint, count, 1, ("ova", "mere", "by", "stead", "uz")), picks, strict=True):
        yield (f"{_choose(('Port', 'Upper', 'Fort', 'New'), pick[0])} {word}", word) if pick[1] < 0.4 else (word,)


def _countries(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    for word, pick in zip(_titled(mint, count, 1, ("ia", "land", "istan")), picks, strict=True):
        yield word, f"{_choose(('Republic of', 'Kingdom of'), pick[0])} {word}"


def _companies(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(count, letters=3)
    endings = ("Works", "Group", "Mills", "Bank", "Lines", "Foods")
    for word, code, pick in zip(_titled(mint, count, 2, ("", "ex", "co")), codes, picks, strict=True):
        yield f"{word} {_choose(endings, pick[0])}", word, code


def _institutes(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(count, letters=3)
    for word, code, pick in zip(_titled(mint, count, 2, ("",)), codes, picks, strict=True):
        yield f"{word} {_choose(('Institute', 'College', 'University', 'Hospital'), pick[0])}", word, code


def _books(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    adjectives = ("Silent", "Red", "Last", "Hollow", "Distant", "Second")
    for word, pick in zip(_titled(mint, count, 2, ("",)), picks, strict=True):
        title = f"{_choose(adjectives, pick[0])} {word}"
        yield f"The {title}", title


def _drugs(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(count, letters=2, digits=3, joint="-")
    return zip(_titled(mint, count, 2, ("oril", "azene", "ivant", "ulon")), codes, strict=True)


def _diseases(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(count, letters=3)
    endings = ("syndrome", "fever", "palsy", "disease", "anaemia")
    for word, code, pick in zip(_titled(mint, count, 2, ("",)), codes, picks, strict=True):
        yield f"{word} {_choose(endings, pick[0])}", word, code


def _genes(count: int, mint: WordMint, picks: np.ndarray) -> Iterator[tuple[str, ...]]:
    return zip(mint.codes(count, letters=3, digits=1), _titled(mint, count, 2, ("in", "ase")), strict=True)


_NAMERS = {
    "person": _people,
    "city": _cities,
    "country": _countries,
    "company": _companies,
    "institute": _institutes,
    "book": _books,
    "drug": _drugs,
    "disease": _diseases,
    "gene": _genes,
}
