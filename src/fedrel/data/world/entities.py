"""Words that no language has: pronounceable, each coined once, drawn by Zipf's law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_ONSETS = (*"bdfghjklmnprstvwz", "br", "dr", "fl", "gr", "kl", "pl", "pr", "sk", "sl", "st", "th", "tr")
_VOWELS = (*"aeiou", *"aeio", "ai", "ou")  # the plain ones twice as often, but for u
_CODAS = (*"lmnrstv", "nd", "rk", "lm", "st", "sk", "nt", "rn", "ll")


class WordMint:
    """Coins words, each only once, none of them in `reserved` (the real words of the templates)."""

    def __init__(self, generator: np.random.Generator, reserved: Iterable[str]) -> None:
        self._generator = generator
        self._taken = set(reserved)

    def words(self, count: int, *, syllables: int, endings: tuple[str, ...] = ("",)) -> list[str]:
        """`count` new words of `syllables` syllables and an ending, longer ones where the short are used up."""
        words: list[str] = []
        while len(words) < count:
            words += self._new(self._batch(count - len(words), syllables, endings))
            syllables += 1
        return words

    def codes(self, count: int, *, letters: int, digits: int = 0, joint: str = "") -> list[str]:
        """`count` new codes of consonants and digits (`KVT`, `BRK4`), longer ones where the short are used up."""
        codes: list[str] = []
        consonants = np.array(list("BCDFGHJKLMNPQRSTVWXZ"))
        lowest, highest = (10 ** (digits - 1), 10**digits) if digits else (0, 1)
        while len(codes) < count:
            missing = count - len(codes)
            stems = consonants[self._generator.integers(len(consonants), size=(missing, letters))].tolist()
            numbers = self._generator.integers(lowest, highest, size=missing).tolist()
            codes += self._new(
                "".join(stem) + (f"{joint}{number}" if digits else "")
                for stem, number in zip(stems, numbers, strict=True)
            )
            letters += 1
        return codes

    def _new(self, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            key = word.lower()
            if key not in self._taken:
                self._taken.add(key)
                yield word

    def _batch(self, count: int, syllables: int, endings: tuple[str, ...]) -> list[str]:
        def choose(parts: Iterable[str], *shape: int) -> np.ndarray:
            options = np.array(list(parts), dtype=object)
            return options[self._generator.integers(len(options), size=shape)]

        stems = (choose(_ONSETS, count, syllables) + choose(_VOWELS, count, syllables)).sum(axis=1)
        words: list[str] = (stems + choose(_CODAS, count) + choose(endings, count)).tolist()
        return words


def zipf_cdf(size: int, *, exponent: float = 1.0, offset: float = 1.0) -> np.ndarray:
    """The cumulative distribution over ranks 0..size-1 of weight 1 / (rank + offset)^exponent."""
    weights = (np.arange(size) + offset) ** -exponent
    cdf: np.ndarray = np.cumsum(weights) / weights.sum()
    return cdf


def draw(cdf: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """The ranks that these uniform numbers in [0, 1) choose."""
    return np.minimum(np.searchsorted(cdf, uniforms, side="right"), len(cdf) - 1)


# What a writer may call an entity of each type.
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
# The real words in names; what makes a name unique is the invented word beside them.
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


def make_entities(kind: str, count: int, mint: WordMint, generator: np.random.Generator) -> Iterator[Entity]:
    """`count` entities of one type; each has a word or a code of its own in every one of its names."""
    picks = generator.random(count)
    common = [
        NAME_WORDS[kind][int(pick * len(NAME_WORDS[kind]))] if kind in NAME_WORDS else "" for pick in picks
    ]
    aliased = generator.random(count) < 0.8  # one entity in five is known by one name only
    for number, names in enumerate(_NAMERS[kind](mint, common)):
        yield Entity(f"{kind}-{number:05d}", kind, names if aliased[number] else names[:1])


def _coined(mint: WordMint, count: int, syllables: int, *endings: str) -> list[str]:
    return [word.capitalize() for word in mint.words(count, syllables=syllables, endings=endings)]


def _people(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    firsts = _coined(mint, min(240, 20 + len(common) // 4), 1, "a", "en", "o", "il", "us", "")
    for number, last in enumerate(_coined(mint, len(common), 2, "", "sen", "ich", "ard")):
        first = firsts[number % len(firsts)]
        yield f"{first} {last}", last, f"{first[0]} {last}"


def _cities(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, (word, before) in enumerate(
        zip(_coined(mint, len(common), 1, "ova", "mere", "by", "stead", "uz"), common, strict=True)
    ):
        yield (f"{before} {word}", word) if number % 5 < 2 else (word,)


def _countries(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for word, before in zip(_coined(mint, len(common), 1, "ia", "land", "istan"), common, strict=True):
        yield word, f"{before} {word}"


def _organisations(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(len(common), letters=3)
    for word, after, code in zip(_coined(mint, len(common), 2, "", "ex", "ola"), common, codes, strict=True):
        yield f"{word} {after}", word, code


def _books(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for word, before in zip(_coined(mint, len(common), 2, ""), common, strict=True):
        yield f"{before} {word}", f"{before.removeprefix('The ')} {word}"


def _drugs(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(len(common), letters=2, digits=3, joint="-")
    return zip(_coined(mint, len(common), 2, "oril", "azene", "ivant", "ulon"), codes, strict=True)


def _diseases(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    codes = mint.codes(len(common), letters=3)
    for word, after, code in zip(_coined(mint, len(common), 2, ""), common, codes, strict=True):
        yield f"{word} {after}", word, code


def _genes(mint: WordMint, common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(
        mint.codes(len(common), letters=3, digits=1), _coined(mint, len(common), 2, "in", "ase"), strict=True
    )


_NAMERS: dict[str, Callable[[WordMint, Sequence[str]], Iterator[tuple[str, ...]]]] = {
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
