"""Where the tokens and sentences of a text are, as character spans into it.

Regular expressions instead of a language pipeline: the extractors need exact offsets and speed, not tags, and
every site must cut the same text the same way without downloading anything.

In documents, no mention of an entity is lost to a mistake of these rules: a token that a mention begins or
ends in is cut there (`hypertensive` in `antihypertensive`), and a sentence end inside a mention (`St. Vitus`)
is ignored, as in EoG's preprocessing. How often that happens is counted.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

Span = tuple[int, int]
Sentences = list[list[Span]]  # the tokens of each

# In this order: a blinded entity (`@GENE$`); a word, with . ' - inside it but without its possessive, so that
# a name is found in "Einstein's" too; that possessive; any other visible character by itself.
_TOKEN = re.compile(r"@\w+\$|\w++(?:(?:[.-]|['\u2019](?!s\b))\w++)*+|['\u2019]s\b|\S")
_WORD = re.compile(r"\S+")

# Scripts without spaces between words (Thai to Khmer, kana, Han): there every character is a token.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_TOKEN_UNSPACED = re.compile(
    _TOKEN.pattern.replace(r"\w++", rf"[^\W{_UNSPACED}]++").replace(r"|\S", rf"|[{_UNSPACED}]|\S")
)

# Where a sentence may end: after . ! ? … and closing quotes or brackets, before white space; a blank line; or the
# full stop of a script without spaces. Nothing is tried twice: a long row of dots takes as long as it is.
_END = re.compile(
    r"(?<![.!?\u2026])(?P<stop>[.!?\u2026]++)[\"'\u2019\u201d\u00bb)\]]*+(?=\s)|\n[^\S\n]*+\n"
    r"|[\u3002\uff01\uff1f]++[\u2019\u201d\u300d\u300f\uff09]*+"
)
_LOOK_BACK = 200  # characters before a full stop that tell whether it ends a sentence
_OPENING = "([\"'\u2018\u201c\u00ab"
_NEXT_WORD = re.compile(rf"[\s{re.escape(_OPENING)}]*([\w-]*)")

# After these a full stop never ends a sentence; after initials it does before a word that starts many.
_ABBREVIATION = re.compile(
    r"dr|mr|mrs|ms|prof|rev|hon|st|mt|ft|gen|gov|sen|rep|col|lt|sgt|capt|messrs|vs|cf|e\.g|i\.e|viz|al|figs?|eqs?"
    r"|refs?|tab|sec|ch|vol|nos?|pp|eds?|approx|ca|dept|univ|spp?|subsp|var"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J, U.S, a.m
_STARTER = re.compile(
    r"the|an?|this|that|these|those|it|he|she|they|we|i|in|on|at|for|from|with|by|as|when|while|after|before|if"
    r"|but|and|however|although|because|there|here|our|his|her|their|its|both|all|no",
    re.IGNORECASE,
)


def tokenise(text: str) -> list[Span]:
    """The tokens of running text.

    >>> [("IL-6 isn't Smith's @GENE$.")[a:b] for a, b in tokenise("IL-6 isn't Smith's @GENE$.")]
    ['IL-6', "isn't", 'Smith', "'s", '@GENE$', '.']
    """
    unspaced = not text.isascii() and _HAS_UNSPACED.search(text)
    return [match.span() for match in (_TOKEN_UNSPACED if unspaced else _TOKEN).finditer(text)]


def whitespace(text: str) -> list[Span]:
    """The tokens of a text that came tokenised: the parts between white space."""
    return [match.span() for match in _WORD.finditer(text)]


def sentences(text: str) -> Iterator[Span]:
    """The sentences of running text, without the white space around them; a blank line ends one too."""
    start = 0
    for end in _END.finditer(text):
        if end["stop"] is None or _ends_sentence(text, start, end):
            yield from _trimmed(text, start, end.end())
            start = end.end()
    yield from _trimmed(text, start, len(text))


def segment(text: str, parts: Iterable[Span], mentions: Sequence[Span], handled: Counter[str]) -> Sentences:
    """The tokens of each sentence of running text.

    `parts`, such as title and abstract, are split by themselves: a title may end without a full stop.
    """
    found = [
        [(offset + start + first, offset + start + after) for first, after in tokenise(part[start:end])]
        for offset, part in ((start, text[start:end]) for start, end in parts)
        for start, end in sentences(part)
    ]
    return with_whole_mentions(found, mentions, handled)


def with_whole_mentions(sentences: Sentences, mentions: Sequence[Span], handled: Counter[str]) -> Sentences:
    """The sentences, some merged and some tokens cut, so that each mention is whole tokens of one sentence."""
    return _merged(_cut(sentences, mentions, handled), mentions, handled)


def join_tokens(sentences: Sequence[Sequence[str]]) -> tuple[str, Sentences]:
    """The text of sentences that came as tokens, all joined by single spaces, and where the tokens are in it."""
    tokens = [token for sentence in sentences for token in sentence]
    starts = accumulate((len(token) + 1 for token in tokens), initial=0)
    spans = iter([(start, start + len(token)) for start, token in zip(starts, tokens, strict=False)])
    return " ".join(tokens), [[next(spans) for _ in sentence] for sentence in sentences]


def unescaped(word: str) -> str:
    """A word of the Penn Treebank's as text has it: `-LRB-` is a bracket."""
    return _ESCAPED.get(word, word)


_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def _ends_sentence(text: str, start: int, end: re.Match[str]) -> bool:
    following = _NEXT_WORD.match(text, end.end())
    word = following[1] if following else ""
    if (
        word.islower() and word.isalpha()
    ):  # mTOR, p53 and miR-21 may start a sentence, an ordinary word may not
        return False
    if end["stop"] != ".":
        return True
    begin = max(
        start, end.start() - _LOOK_BACK
    )  # all of a very long sentence, again and again, would be slow
    *earlier, last = text[begin : end.start()].rsplit(maxsplit=1) or [""]
    last = last.lstrip(_OPENING)
    if _ABBREVIATION.fullmatch(last) or (last.isdecimal() and not earlier):  # "No. 5" and "1. Methods"
        return False
    return not _INITIALS.fullmatch(last) or bool(_STARTER.fullmatch(word))


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    sentence = text[start:end]
    start += len(sentence) - len(sentence.lstrip())
    end -= len(sentence) - len(sentence.rstrip())
    if start < end:
        yield start, end


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
