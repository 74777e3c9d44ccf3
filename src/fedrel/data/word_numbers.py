"""Many sentences cut into numbered words at once.

A token never reaches over white space, and text repeats itself: most of what stands between two spaces was cut
before. So a sentence is split at its spaces, each part is cut by `tokenise` the first time it is seen, and from
then on it is looked up. The tokens are the same as those of whole sentences, one after the other.
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
        whole = " ".join(texts)
        parts = whole.split(" ")
        if _GROWS in whole:  # of such a sentence, every token is put in lower case by itself
            parts = [f"{part} " if _GROWS in text else part for text in texts for part in text.split(" ")]
        if len(self._parts) > _PARTS:
            self._parts = _Parts(self._number)
        numbers = np.fromiter(map(self._parts.__getitem__, parts), np.int32, len(parts))
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

    def __missing__(self, part: str) -> int:
        text = part.removesuffix(" ")
        if text.isalnum():  # most parts are a word, or a word and a comma or full stop
            words, ends = [text.lower()], [len(text)]
        elif text[-1:] in _AFTER_WORD and text[:-1].isalnum():
            words, ends = [text[:-1].lower(), text[-1]], [len(text) - 1, len(text)]
        else:
            spans = tokenise(text)
            words = _lowered(text, spans) if text is part else [text[a:b].lower() for a, b in spans]
            ends = [end for _, end in spans]
        self._starts.append(len(self._words))
        self._counts.append(len(ends))
        self._lengths.append(len(text))
        self._words.extend(map(self._number, words))
        self._ends.extend(ends)
        self[part] = number = len(self)
        return number

    def table(self) -> _Table:
        """The tokens of all parts, which must be gone before a new part is looked up."""
        columns = (self._words, self._ends, self._starts, self._counts, self._lengths)
        return _Table(*(np.frombuffer(column, column.typecode) for column in columns))


def _lowered(text: str, spans: Sequence[Span]) -> list[str]:
    lowered = text.lower()
    if len(lowered) == len(text):
        return [lowered[start:end] for start, end in spans]
    return [text[start:end].lower() for start, end in spans]
