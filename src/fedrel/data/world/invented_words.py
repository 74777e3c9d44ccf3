"""Invented words and the entities named with them: people, cities, drugs and so on, with their aliases.

Words are pronounceable, each made once, drawn by Zipf's law, and put into patterns to fill sentences.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from fedrel.data.text import tokenise

T = TypeVar("T")
_ONSETS = (*"bdfghjklmnprstvwz", "br", "dr", "fl", "gr", "kl", "pl", "pr", "sk", "sl", "st", "th", "tr")
_VOWELS = (*"aeiou", *"aeio", "ai", "ou")  # single vowels but u twice as often
_CODAS = (*"lmnrstv", "nd", "rk", "lm", "st", "sk", "nt", "rn", "ll")
_SLOT = re.compile(r"\{([navdy])\}")
_BATCH = 256
# Of a hundred vocabulary words, how many are nouns, adjectives, verbs and adverbs, and what they end in.
_CLASSES = {
    "n": (52, ("", "", "", "er", "ine", "om")),
    "a": (18, ("ic", "al", "ous", "ish")),
    "v": (20, ("ed",)),
    "d": (10, ("ly",)),
}
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


class WordMaker:
    """Makes words, each only once, and none that is in `reserved` (the real words of the templates)."""

    def __init__(self, generator: np.random.Generator, reserved: Iterable[str]) -> None:
        self._generator = generator
        self._taken = set(reserved)

    def words(self, count: int, *, syllables: int, endings: tuple[str, ...] = ("",)) -> list[str]:
        """`count` new words of `syllables` syllables and an ending, and longer ones when those are used up."""
        words: list[str] = []
        while len(words) < count:
            words += self._new(self._batch(count - len(words), syllables, endings))
            syllables += 1
        return words

    def codes(self, count: int, *, letters: int, digits: int = 0, joint: str = "") -> list[str]:
        """`count` new codes of consonants and digits (`KVT`, `BRK4`), and longer ones when those are used up."""
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


class Phrase(NamedTuple):
    """A piece of text and how many tokens it has."""

    text: str
    tokens: int


def phrase(text: str) -> Phrase:
    """A piece of text with the number of its tokens."""
    return Phrase(text, len(tokenise(text)))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Filler words by class, from frequent to rare; frequent words are short, as in any language."""

    words: dict[str, np.ndarray]
    cdf: dict[str, np.ndarray]

    def reordered(self, generator: np.random.Generator) -> Vocabulary:
        """The same words in another order: each swaps its rank with words of about its own frequency."""
        words = {}
        for kind, ordered in self.words.items():
            octave = np.floor(1.5 * np.log2(np.arange(len(ordered)) + 4))
            words[kind] = ordered[np.argsort(octave + generator.random(len(ordered)))]
        return Vocabulary(words, self.cdf)


def make_vocabulary(size: int, maker: WordMaker) -> Vocabulary:
    """`size` new words, Zipf-Mandelbrot distributed (the offset leaves the top ranks to function words)."""
    words, cdf = {}, {}
    for kind, (share, endings) in _CLASSES.items():
        count = round(size * share / 100)
        short, medium = min(count, 100), min(count, 5000)
        coined = maker.words(short, syllables=1, endings=endings)
        coined += maker.words(medium - short, syllables=2, endings=endings)
        coined += maker.words(count - medium, syllables=3, endings=endings)
        words[kind] = np.array(coined, dtype=object)
        cdf[kind] = zipf_cdf(count, offset=3.0)
    words["y"] = np.array([str(number) for number in range(10, 1990)], dtype=object)
    cdf["y"] = zipf_cdf(len(words["y"]), exponent=0.3)
    return Vocabulary(words, cdf)


def phrases(
    patterns: Sequence[str], vocabulary: Vocabulary, generator: np.random.Generator
) -> Iterator[Phrase]:
    """An endless stream of the patterns with their slots filled."""
    formats = [_SLOT.sub("%s", pattern) for pattern in patterns]
    tokens = [phrase(_SLOT.sub("w", pattern)).tokens for pattern in patterns]
    kinds = [_SLOT.findall(pattern) for pattern in patterns]
    while True:
        chosen = generator.integers(len(patterns), size=_BATCH).tolist()
        slots = np.array([kind for index in chosen for kind in kinds[index]], dtype="<U1")
        filling = np.empty(len(slots), dtype=object)
        for kind, words in vocabulary.words.items():
            mine = slots == kind
            filling[mine] = words[draw(vocabulary.cdf[kind], generator.random(np.count_nonzero(mine)))]
        words_in_order, start = filling.tolist(), 0
        for index in chosen:
            end = start + len(kinds[index])
            yield Phrase(formats[index] % tuple(words_in_order[start:end]), tokens[index])
            start = end


class Choices:
    """Single random choices, fast because uniform numbers are drawn in blocks."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._numbers = self._blocks(generator)

    @staticmethod
    def _blocks(generator: np.random.Generator) -> Iterator[float]:
        while True:
            yield from generator.random(4096).tolist()

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return next(self._numbers)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return next(self._numbers) < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(next(self._numbers) * len(options))]

    def weighted(self, options: Sequence[T], cdf: Sequence[float]) -> T:
        """One of the options by its cumulative distribution."""
        return options[min(bisect_right(cdf, next(self._numbers)), len(options) - 1)]


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
