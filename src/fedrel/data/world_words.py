"""Words that no language has: pronounceable, unique, Zipf-distributed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

_ONSETS = "b br ch d dr f fl g gr h j k kl l m n p pl qu r s sk sl st t th tr v w z".split()
_VOWELS = "a e i o u a e i o ai ea ou".split()
_CODAS = "l m n r s t x nd rk lm st sk nt rn".split() + [""] * 12


class WordMint:
    """Coins words, each only once, none of them in `reserved` (the real words of the templates)."""

    def __init__(self, generator: np.random.Generator, reserved: Iterable[str]) -> None:
        self._generator = generator
        self._taken = set(reserved)

    def words(self, count: int, *, syllables: int, endings: tuple[str, ...] = ("",)) -> list[str]:
        """`count` new words of about `syllables` syllables, longer where the short ones are used up."""
        words: list[str] = []
        while len(words) < count:
            for word in self._batch(count - len(words), syllables, endings):
                if word not in self._taken:
                    self._taken.add(word)
                    words.append(word)
            syllables += 1
        return words

    def codes(self, count: int, *, letters: int, digits: int = 0, joint: str = "") -> list[str]:
        """`count` new codes of capital consonants and digits (`KVT`, `BRK4`), longer where the short are used up."""
        codes: list[str] = []
        consonants = np.array(list("BCDFGHJKLMNPQRSTVWXZ"))
        while len(codes) < count:
            block = max(count - len(codes), 16)
            stems = consonants[self._generator.integers(len(consonants), size=(block, letters))]
            lowest = 10 ** (digits - 1) if digits else 0
            numbers = self._generator.integers(lowest, 10**digits, size=block)
            for stem, number in zip(stems.tolist(), numbers.tolist(), strict=True):
                code = "".join(stem) + (f"{joint}{number}" if digits else "")
                if code.lower() not in self._taken and len(codes) < count:
                    self._taken.add(code.lower())
                    codes.append(code)
            letters += 1
        return codes

    def _batch(self, count: int, syllables: int, endings: tuple[str, ...]) -> Iterator[str]:
        parts = [
            np.array(kind, dtype=object)[self._generator.integers(len(kind), size=(count, syllables))]
            for kind in (_ONSETS, _VOWELS, _CODAS)
        ]
        # A coda inside a word makes it clumsy: only the last syllable keeps one.
        parts[2][:, :-1] = ""
        last = np.array(endings, dtype=object)[self._generator.integers(len(endings), size=count)]
        stems = (parts[0] + parts[1] + parts[2]).sum(axis=1)
        return iter((stems + last).tolist())


def zipf_cdf(size: int, *, exponent: float = 1.0, offset: float = 1.0) -> np.ndarray:
    """The cumulative distribution over ranks 0..size-1 of weight 1 / (rank + offset)^exponent."""
    cdf = np.cumsum((np.arange(size) + offset) ** -exponent)
    return cdf / cdf[-1]


def draw(cdf: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """The ranks that these uniform numbers in [0, 1) choose."""
    return np.minimum(np.searchsorted(cdf, uniforms, side="right"), len(cdf) - 1)
