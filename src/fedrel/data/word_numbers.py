"""Many sentences cut into numbered words at once.

A token never reaches over white space, and text repeats itself: most of what stands between two spaces was cut
before. So a sentence is split at its spaces, each part is cut by `tokenise` the first time it is seen, and from
then on it is looked up: short ones, which most are, by their bytes in arrays, thousands at a time and without an
object for each. The tokens are the same as those of whole sentences, one after the other.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrel.data.text import Span, tokenise

Ints = NDArray[np.int64]

_PARTS = 1 << 20  # distinct parts that are kept; beyond it, tables that rarely help would fill the memory
_AFTER_WORD = frozenset(",.;:")
_SHORT = 15  # bytes of a part that is looked up with others at once
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)  # to keep so many bytes of eight
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, which spreads what it multiplies
_GROWS = "\u0130"  # İ, the only character that is two in lower case


class Tokens(NamedTuple):
    """The tokens of some sentences, one sentence after the other."""

    words: NDArray[np.int32]  # [tokens] numbers of the words
    sizes: Ints  # [sentences] how many tokens each has
    at: Ints  # [sentences, places] the token of each place: the first one that ends after it


class WordNumbers:
    """Gives tokens their numbers: `number` knows the number of a word in lower case, or gives it the next one."""

    def __init__(self, number: Callable[[str], int]) -> None:
        self._number = number
        self._parts = _Parts(number)

    def of(self, texts: Sequence[str], places: Ints) -> Tokens:
        """The tokens of running text, and which of them are at some places (characters), [sentences, places]."""
        if len(self._parts) > _PARTS:
            self._parts = _Parts(self._number)
        numbers = self._parts.of(texts)
        after = np.cumsum([text.count(" ") + 1 for text in texts])  # each sentence's last part
        first = np.concatenate(([0], after[:-1]))

        table = self._parts.table()
        counts, steps = table.counts[numbers], table.lengths[numbers] + 1
        before = np.concatenate(([0], counts.cumsum()))  # tokens before each part
        begins = steps.cumsum() - steps  # characters before each part
        words = table.words[np.arange(before[-1]) + np.repeat(table.starts[numbers] - before[:-1], counts)]

        wanted = begins[first, None] + places
        part = np.searchsorted(begins, wanted, side="right") - 1
        inside = wanted - begins[part]
        at = before[part] - before[first, None]
        for place in zip(*np.nonzero(inside > 0), strict=True):
            at[place] += np.count_nonzero(table.ends_of(int(numbers[part[place]])) <= inside[place])
        return Tokens(words, before[after] - before[first], at)

    def given(self, texts: Sequence[str], spans: Sequence[Sequence[Span]], places: Ints) -> Tokens:
        """The same of sentences that came tokenised."""
        words = [self._number(word) for pair in zip(texts, spans, strict=True) for word in _lowered(*pair)]
        at = [
            [bisect_right(ends, place) for place in wanted]
            for ends, wanted in zip(([end for _, end in of] for of in spans), places.tolist(), strict=True)
        ]
        return Tokens(np.array(words, np.int32), np.array([len(of) for of in spans]), np.array(at))


class _Table(NamedTuple):
    """The tokens of all parts, one part after the other."""

    words: NDArray[np.int32]  # [tokens] numbers of the words
    ends: NDArray[np.int32]  # [tokens] where each ends in its part
    starts: Ints  # [parts] the tokens before those of a part
    counts: NDArray[np.int32]  # [parts] how many tokens it has
    lengths: NDArray[np.int32]  # [parts] in characters

    def ends_of(self, part: int) -> NDArray[np.int32]:
        start = self.starts[part]
        return self.ends[start : start + self.counts[part]]


class _Parts(dict[str, int]):
    """What stood between two spaces, by its number, and its tokens.

    A part with a space after it is one whose tokens are put in lower case one by one.
    """

    def __init__(self, number: Callable[[str], int]) -> None:
        super().__init__()
        self._number = number
        self._words, self._ends, self._starts = array("i"), array("i"), array("q")
        self._counts, self._lengths = array("i"), array("i")
        self._short = _ShortParts()

    def __missing__(self, part: str) -> int:
        words, ends, number = self._words, self._ends, self._number
        before, size = len(words), len(part)
        self._starts.append(before)
        if part.isalnum():  # most parts are a word, or a word and a comma or full stop
            words.append(number(part.lower()))
            ends.append(size)
        elif part[-1:] in _AFTER_WORD and part[:-1].isalnum():
            words.append(number(part[:-1].lower()))
            words.append(number(part[-1]))
            ends.append(size - 1)
            ends.append(size)
        else:
            text = part.removesuffix(" ")
            spans, size = tokenise(text), len(text)
            lowered = _lowered(text, spans) if text is part else [text[a:b].lower() for a, b in spans]
            words.extend(map(number, lowered))
            ends.extend([end for _, end in spans])
        self._counts.append(len(words) - before)
        self._lengths.append(size)
        self[part] = new = len(self)
        return new

    def of(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of all parts of some texts."""
        whole = " ".join(texts)
        if _GROWS in whole:  # of a text that has it, every token is put in lower case by itself
            parts = [f"{part} " if _GROWS in text else part for text in texts for part in text.split(" ")]
            return np.fromiter(map(self.__getitem__, parts), np.int32, len(parts))
        encoded = f"{whole} ".encode()
        keys = _Keys.of(encoded)
        numbers = self._short.find(keys)
        missing = np.flatnonzero(numbers < 0)
        bounds = zip(keys.starts[missing].tolist(), keys.ends[missing].tolist(), strict=True)
        numbers[missing] = [self[encoded[start:end].decode()] for start, end in bounds]
        self._short.add(keys, numbers, missing)
        return numbers

    def table(self) -> _Table:
        """The tokens of all parts, which must be gone before a new part is looked up."""
        columns = (self._words, self._ends, self._starts, self._counts, self._lengths)
        return _Table(*(np.frombuffer(column, column.typecode) for column in columns))


class _Keys(NamedTuple):
    """The parts of a text that ends with a space, and for each short one its bytes as two numbers."""

    starts: Ints  # [parts] the first byte
    ends: Ints  # [parts] the byte after the last
    short: NDArray[np.bool_]  # [parts] whether it has at most `_SHORT` bytes
    low: NDArray[np.uint64]  # [parts] the first eight bytes
    high: NDArray[np.uint64]  # [parts] the others, and the length

    @classmethod
    def of(cls, text: bytes) -> _Keys:
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(" "))
        starts = np.concatenate(([0], ends[:-1] + 1))
        sizes = ends - starts
        padded = text + bytes(16)
        windows = np.ndarray(
            len(padded) - 7, "<u8", padded, strides=(1,)
        )  # the eight bytes from each place on
        low = windows[starts] & _MASKS[np.minimum(sizes, 8)]
        high = windows[starts + np.minimum(sizes, 8)] & _MASKS[np.clip(sizes - 8, 0, 7)]
        high |= sizes.astype(np.uint64) << np.uint64(56)
        return cls(starts, ends, sizes <= _SHORT, low, high)


class _ShortParts:
    """The numbers of short parts by their keys: a hash table with open addressing, for many keys at a time."""

    def __init__(self) -> None:
        self._grow(1 << 14)

    def find(self, keys: _Keys) -> NDArray[np.int32]:
        """The number of each key; -1 for one that is not there, or not short."""
        found = np.full(len(keys.low), -1, np.int32)
        left = np.flatnonzero(keys.short)
        low, high = keys.low[left], keys.high[left]
        slots = self._slots(low, high)
        while len(left):
            numbers = self._numbers[slots]
            same = (self._low[slots] == low) & (self._high[slots] == high)
            found[left] = np.where(same, numbers, -1)
            on = ~same & (numbers >= 0)  # another key has the slot: look at the next
            left, low, high, slots = left[on], low[on], high[on], (slots[on] + 1) & self._mask
        return found

    def add(self, keys: _Keys, numbers: NDArray[np.int32], missing: Ints) -> None:
        """Add the short ones of the keys that were not found; each may be among them more than once."""
        places = missing[keys.short[missing]]
        places = places[np.unique(numbers[places], return_index=True)[1]]
        if 3 * (self._count + len(places)) > 2 * len(self._numbers):
            old = self._numbers >= 0
            kept = self._low[old], self._high[old], self._numbers[old]
            self._grow(2 * len(self._numbers) + 2 * len(places))
            self._put(*kept)
        self._put(keys.low[places], keys.high[places], numbers[places])

    def _put(self, low: NDArray[np.uint64], high: NDArray[np.uint64], numbers: NDArray[np.int32]) -> None:
        """Add keys, each of which is new."""
        self._count += len(numbers)
        slots = self._slots(low, high)
        while len(numbers):
            free = np.flatnonzero(self._numbers[slots] < 0)
            _, first = np.unique(slots[free], return_index=True)  # of several for a free slot, one gets it
            chosen = free[first]
            at = slots[chosen]
            self._low[at], self._high[at], self._numbers[at] = low[chosen], high[chosen], numbers[chosen]
            rest = np.ones(len(numbers), np.bool_)
            rest[chosen] = False
            low, high, numbers, slots = low[rest], high[rest], numbers[rest], (slots[rest] + 1) & self._mask

    def _grow(self, size: int) -> None:
        size = 1 << (size - 1).bit_length()
        self._low, self._high = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        self._numbers = np.full(size, -1, np.int32)
        self._mask, self._shift, self._count = size - 1, np.uint64(64 - (size - 1).bit_length()), 0

    def _slots(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> Ints:
        mixed = (low * _ODD) ^ high
        mixed ^= mixed >> np.uint64(29)
        return ((mixed * _ODD) >> self._shift).astype(np.int64)


def _lowered(text: str, spans: Sequence[Span]) -> list[str]:
    lowered = text.lower()
    if len(lowered) == len(text):
        return [lowered[start:end] for start, end in spans]
    return [text[start:end].lower() for start, end in spans]
