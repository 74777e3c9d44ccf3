"""Sentences and tokens that respect mentions, with their places in the text.

A mention is never lost to a splitter's mistake: a token that a mention begins or ends in is cut there
(`hypertensive` in `antihypertensive`), and a sentence end inside a mention (`St. Vitus`) is no sentence end, as in
EoG's preprocessing. How often either was needed is counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from fedrel.data import text as running
from fedrel.data.text import Span

Sentences = list[list[Span]]


def segment(text: str, parts: Iterable[Span], mentions: Sequence[Span], handled: Counter[str]) -> Sentences:
    """The tokens of each sentence of running text.

    `parts`, such as title and abstract, are split by themselves: a title may end without a full stop.
    """
    sentences = [
        [
            (start + token_start, start + token_end)
            for token_start, token_end in running.tokenise(text[start:end])
        ]
        for part_start, part_end in parts
        for start, end in _sentences(text, part_start, part_end)
    ]
    return respecting(sentences, mentions, handled)


def respecting(sentences: Sentences, mentions: Sequence[Span], handled: Counter[str]) -> Sentences:
    """The sentences, some merged and some tokens cut, so that each mention is whole tokens of one sentence."""
    return _merged(_cut(sentences, mentions, handled), mentions, handled)


def spans_of(sentences: Sequence[Sequence[str]]) -> tuple[str, Sentences]:
    """The text of sentences that came as tokens, all joined by single spaces, and where the tokens are in it."""
    tokens = [token for sentence in sentences for token in sentence]
    starts = accumulate((len(token) + 1 for token in tokens), initial=0)
    spans = iter([(start, start + len(token)) for start, token in zip(starts, tokens, strict=False)])
    return " ".join(tokens), [[next(spans) for _ in sentence] for sentence in sentences]


def _sentences(text: str, start: int, end: int) -> Iterable[Span]:
    return ((start + first, start + last) for first, last in running.sentences(text[start:end]))


def _cut(sentences: Sentences, mentions: Iterable[Span], handled: Counter[str]) -> Sentences:
    points = sorted({edge for mention in mentions for edge in mention})

    def pieces(token: Span) -> list[Span]:
        start, end = token
        inside = points[bisect_right(points, start) : bisect_left(points, end)]
        if not inside:
            return [token]
        handled["split_tokens"] += 1
        return list(zip([start, *inside], [*inside, end], strict=True))

    return [[piece for token in sentence for piece in pieces(token)] for sentence in sentences]


def _merged(sentences: Sentences, mentions: Iterable[Span], handled: Counter[str]) -> Sentences:
    starts, ends = [sentence[0][0] for sentence in sentences], [sentence[-1][1] for sentence in sentences]
    joined: set[int] = set()  # numbers of sentences that belong to the one before them
    for start, end in mentions:
        joined.update(range(bisect_right(ends, start) + 1, bisect_left(starts, end)))
    handled["merged_sentences"] += len(joined)
    merged: Sentences = []
    for number, sentence in enumerate(sentences):
        if number in joined:
            merged[-1].extend(sentence)
        else:
            merged.append(list(sentence))
    return merged
