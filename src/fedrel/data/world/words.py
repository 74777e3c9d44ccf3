"""Words that no language has: pronounceable, each coined once, drawn by Zipf's law."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
